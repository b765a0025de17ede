"""The model that serving params describe without a checkpoint."""

from typing import Any

from saxml_ext.engine import config as config_lib
from saxml_ext.params import settings as settings_lib

# What a checkpoint might know -> the attribute that has it otherwise.
_ATTRIBUTES = {
  **settings_lib.SIZES,
  'rotary_dim': 'ROTARY_DIM',
  'ln_epsilon': 'LAYER_NORM_EPSILON',
}


def of(settings: settings_lib.Settings) -> config_lib.ModelConfig:
  """Returns the sizes that the params fix.

  Without NUM_HEADS there are as many heads as fill the width, as in Pax.

  Raises:
    ValueError: something is left to the checkpoint, or the sizes make no model.
  """
  known: dict[str, Any] = {
    **settings.shape,
    'rotary_dim': settings.rotary_dim,
    'ln_epsilon': settings.ln_epsilon,
    'rotary_base': settings.rotary_base,
  }
  if 'model_dim' in known and 'head_dim' in known:
    known.setdefault('num_heads', known['model_dim'] // known['head_dim'])
  missing = [
    attribute
    for name, attribute in _ATTRIBUTES.items()
    if known.get(name) is None
  ]
  if missing:
    raise ValueError(
      f'the params leave {" and ".join(missing)} to the checkpoint, and there is'
      f' none: give an override of each, such as {missing[0]}=<number>'
    )
  return config_lib.ModelConfig(
    **known,
    ln_direct_scale=settings.family.ln_direct_scale,
    architecture=settings.family.architecture,
  )
