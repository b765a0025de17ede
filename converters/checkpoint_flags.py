"""Flags that several programs of this folder have, each defined in one place.

They are defined by calls, so that a program has none that it does not read.
"""

from collections.abc import Mapping

from absl import flags

from converters.convert import model_source
from saxml_ext.families import hf_config

# A flag belongs to the program that asks for it.
flags.disclaim_key_flags()

_NUMBERS = {
  'layers': 'Number of layers.',
  'dim': 'Model dimension.',
  'heads': 'Number of heads.',
  'vocab': 'Number of tokens.',
  'shards': 'Number of files of weights.',
}


def base() -> flags.FlagHolder[str | None]:
  return flags.DEFINE_string(
    'base',
    None,
    'Directory of the Hugging Face checkpoint, or the id of a model on its hub,'
    ' such as EleutherAI/gpt-j-6b.',
  )


def pax() -> flags.FlagHolder[str | None]:
  return flags.DEFINE_string(
    'pax', None, 'Directory or URL of the PAX checkpoint.'
  )


def articles(purpose: str) -> flags.FlagHolder[str | None]:
  return flags.DEFINE_string(
    'articles', None, f'{purpose}, in the schema of cnn_eval.json.'
  )


def dtype(of: str) -> flags.FlagHolder[str]:
  return flags.DEFINE_enum(
    'dtype', 'float32', list(model_source.DTYPES), f'Type of the {of}.'
  )


def overwrite(output: str) -> flags.FlagHolder[bool]:
  return flags.DEFINE_bool(
    'overwrite',
    False,
    f'Replace the checkpoint that is in --{output}, once the new one is'
    ' complete; in a bucket, at the start.',
  )


def resume(output: str) -> flags.FlagHolder[bool]:
  return flags.DEFINE_bool(
    'resume', False, f'Go on with what an interrupted run left in --{output}.'
  )


def weights_format(default: str) -> flags.FlagHolder[str]:
  return flags.DEFINE_enum(
    'format', default, ['safetensors', 'bin'], 'Format of the weights.'
  )


def seed() -> flags.FlagHolder[int]:
  return flags.DEFINE_integer('seed', 0, 'Seed of the weights.', 0)


def numbers(**defaults: int) -> Mapping[str, flags.FlagHolder[int]]:
  """Returns flags of numbers of at least 1, by their names."""
  return {
    name: flags.DEFINE_integer(name, default, _NUMBERS[name], 1)
    for name, default in defaults.items()
  }


def sizes(
  found: Mapping[str, flags.FlagHolder[int]], rotary_dim: int
) -> hf_config.HFConfig:
  """Returns the sizes that the flags of `numbers` state."""
  layers, dim, heads, vocab = (
    found[name].value for name in ('layers', 'dim', 'heads', 'vocab')
  )
  return hf_config.HFConfig(
    layers, dim, heads, 4 * dim, vocab, rotary_dim=rotary_dim
  )
