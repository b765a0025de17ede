"""Describes a converted model in gptj_config.json."""

from saxml_ext.families import family as family_lib
from saxml_ext.families import hf_config
from saxml_ext.families import layout
from saxml_ext.pax import description


def describe(
  family: family_lib.Family,
  config: hf_config.HFConfig,
  shape: layout.ModelShape,
  dtype: str,
) -> description.Description:
  """Returns what gptj_config.json says of a model.

  Args:
    family: The family of the model.
    config: of the source.
    shape: sizes of the PAX model.
    dtype: name of the type of its variables.
  """
  pad, stops = config.pad_token_id, config.stop_token_ids
  return description.Description(
    family=family.name,
    rotary_base=config.rotary_base,
    rotary_dim=config.rotary_dim,
    ln_epsilon=config.layer_norm_epsilon,
    max_positions=config.max_positions,
    bos_id=config.bos_token_id,
    eos_id=config.eos_token_id,
    stop_ids=list(stops) if len(stops) > 1 else None,
    pad_id=config.eos_token_id if pad is None else pad,
    num_layers=shape.num_layers,
    model_dim=shape.model_dim,
    num_heads=shape.num_heads,
    num_kv_heads=shape.num_kv_heads or None,
    head_dim=shape.head_dim,
    hidden_dim=shape.hidden_dim,
    vocab_size=shape.vocab_size,
    dtype=dtype,
  )


def write(
  directory: str,
  family: family_lib.Family,
  config: hf_config.HFConfig,
  shape: layout.ModelShape,
  dtype: str,
) -> None:
  """Writes gptj_config.json.

  Args:
    directory: Where `checkpoint_00000000` is going to be, local or a URL.
    family: The family of the model.
    config: What the source's config.json says.
    shape: Sizes of the PAX model.
    dtype: Name of the type of its variables.

  Raises:
    OSError, saxml_ext.common.errors.SaxError: The file cannot be written.
  """
  description.write(directory, describe(family, config, shape, dtype))
