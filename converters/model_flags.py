"""Defines the flags of programs that make random models."""

from absl import flags

from saxml_ext.families import hf_config

LAYERS = flags.DEFINE_integer('layers', 2, 'The number of layers.', 1)
DIM = flags.DEFINE_integer('dim', 64, 'The model dimension.', 1)
HEADS = flags.DEFINE_integer('heads', 4, 'The number of heads.', 1)
VOCAB = flags.DEFINE_integer('vocab', 256, 'The number of tokens.', 1)
FORMAT = flags.DEFINE_enum(
  'format', 'safetensors', ['safetensors', 'bin'], 'The format of the weights.'
)
SHARDS = flags.DEFINE_integer('shards', 1, 'The number of weight files.', 1)
SEED = flags.DEFINE_integer('seed', 0, 'The seed of the weights.', 0)


def sizes(rotary_dim: int) -> hf_config.HFConfig:
  """Returns the model sizes that the flags set.

  Args:
    rotary_dim: The number of dimensions of each head that rotate.
  """
  dim = DIM.value
  return hf_config.HFConfig(
    LAYERS.value, dim, HEADS.value, 4 * dim, VOCAB.value, rotary_dim=rotary_dim
  )
