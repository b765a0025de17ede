r"""Writes a Hugging Face checkpoint with random weights, of any known family.

  random_hf --out=DIR --family=gpt_neox --like=pythia-410m

  random_hf --out=DIR --family=gptj --layers=28 --dim=4096 --heads=16 \
      --rotary_dim=64 --vocab=50401 --format=bin --shards=6

Tensors are made and written one at a time. The same flags give the same bytes.
Use the checkpoint to test sizes and speed. The model cannot generate meaningful
text.
"""

from collections.abc import Sequence
import dataclasses
import os

from absl import app
from absl import flags

from converters import model_flags
from converters.convert import model_source
from converters.convert import random_weights
from saxml_ext.common import flag_rules
from saxml_ext.common import program
from saxml_ext.common import user_path
from saxml_ext.families import all as families
from saxml_ext.families import hf_config

_FAMILY = flags.DEFINE_enum(
  'family',
  families.named(None).name,
  families.convertible(),
  'The family of the model.',
)
_LIKE = flags.DEFINE_string(
  'like', '', 'The published model to copy all sizes from.'
)
_OUT = flags.DEFINE_string('out', None, 'The output directory.')
_ROTARY_DIM = flags.DEFINE_integer(
  'rotary_dim',
  None,
  'The even number of dimensions of each head that rotate, by default 8.'
  ' Refused for families that rotate whole heads.',
  2,
)
_KV_HEADS = flags.DEFINE_integer(
  'kv_heads',
  None,
  'The number of heads of keys and values, by default --heads. Refused for'
  ' families whose queries do not share keys.',
  1,
)
_HIDDEN = flags.DEFINE_integer(
  'hidden',
  None,
  'The width inside feed-forward layers, by default 4 x --dim.',
  1,
)
_DTYPE = flags.DEFINE_enum(
  'dtype', 'float32', list(model_source.DTYPES), 'The type of the weights.'
)
flag_rules.act_only(
  'without --like, which sets all sizes',
  lambda: not _LIKE.value,
  'layers dim heads rotary_dim kv_heads hidden vocab',
)


def _config() -> hf_config.HFConfig:
  if not _LIKE.value:
    return _from_flags()
  known = families.FAMILIES[_FAMILY.value].published
  if _LIKE.value not in known:
    raise ValueError(
      f'--like={_LIKE.value} is not a known {_FAMILY.value} model. Available:'
      f' {", ".join(known) or "none"}.'
    )
  return known[_LIKE.value]


def _from_flags() -> hf_config.HFConfig:
  config = families.FAMILIES[_FAMILY.value].config
  assert config  # --family has only families with a config.json.
  keys = config.keys
  turns_parts = 'rotary_dim' in keys or 'rotary_share' in keys
  for flag, has_it in (
    (_ROTARY_DIM, turns_parts),
    (_KV_HEADS, 'num_kv_heads' in keys),
  ):
    if flag.value is not None and not has_it:
      raise ValueError(
        f'--{flag.name}={flag.value} has no effect on a {_FAMILY.value} model.'
        ' Leave the flag out.'
      )
  rotary_dim = _ROTARY_DIM.value or 8
  if not turns_parts:
    rotary_dim = model_flags.DIM.value // model_flags.HEADS.value
  sizes = model_flags.sizes(rotary_dim)
  return dataclasses.replace(
    sizes,
    num_kv_heads=_KV_HEADS.value or 0,
    hidden_dim=_HIDDEN.value or sizes.hidden_dim,
  )


def main(argv: Sequence[str], only: str = '') -> None:
  """Writes the checkpoint.

  Args:
    argv: The program and its arguments.
    only: The only family that the program makes; '' means all families.
  """
  if only not in ('', _FAMILY.value):
    raise app.UsageError(f'Use random_hf for --family={_FAMILY.value}.')
  out = user_path.resolve(_OUT.value)
  with program.exit_on(os.path.basename(argv[0])):
    random_weights.write(
      out,
      _config(),
      model_flags.FORMAT.value,
      model_flags.SHARDS.value,
      model_flags.SEED.value,
      _DTYPE.value,
      family=families.FAMILIES[_FAMILY.value],
    )
  print(f'Wrote {out}.')


if __name__ == '__main__':
  flags.mark_flags_as_required(['out'])
  program.run(main)
