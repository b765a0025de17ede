"""Writes a Hugging Face GPT-J checkpoint with random weights, of any size.

  random_gptj --out=DIR --layers=28 --dim=4096 --heads=16 --rotary_dim=64 \\
      --vocab=50401 --format=bin --shards=6

Tensors are made and written one at a time. The same flags give the same bytes.
It is for tests of size and speed: the model speaks no language.
"""

from collections.abc import Sequence
import sys

from absl import flags

from converters.convert import gptj_source
from converters.convert import random_weights
from saxml_ext.common import program
from saxml_ext.common import user_path
from saxml_ext.pax import layout

_OUT = flags.DEFINE_string('out', None, 'Directory to write to.')
_LAYERS = flags.DEFINE_integer('layers', 2, 'Number of layers.', 1)
_DIM = flags.DEFINE_integer('dim', 64, 'Model dimension.', 1)
_HEADS = flags.DEFINE_integer('heads', 4, 'Number of heads.', 1)
_ROTARY_DIM = flags.DEFINE_integer(
  'rotary_dim', 8, 'Dimensions of each head that rotate; even.', 2
)
_VOCAB = flags.DEFINE_integer('vocab', 256, 'Number of tokens.', 1)
_FORMAT = flags.DEFINE_enum(
  'format', 'safetensors', ['safetensors', 'bin'], 'Format of the weights.'
)
_SHARDS = flags.DEFINE_integer('shards', 1, 'Number of files of weights.', 1)
_SEED = flags.DEFINE_integer('seed', 0, 'Seed of the weights.', 0)
_DTYPE = flags.DEFINE_enum(
  'dtype', 'float32', list(gptj_source.DTYPES), 'Type of the weights.'
)


def main(argv: Sequence[str]) -> None:
  del argv
  out = user_path.resolve(_OUT.value)
  try:
    shape = layout.GPTJShape(
      _LAYERS.value, _DIM.value, _HEADS.value, 4 * _DIM.value, _VOCAB.value
    )
    random_weights.write(
      out,
      shape,
      _ROTARY_DIM.value,
      _FORMAT.value,
      _SHARDS.value,
      _SEED.value,
      _DTYPE.value,
    )
  except (ValueError, OSError) as e:
    print(f'random_gptj: {e}', file=sys.stderr)
    sys.exit(1)
  print(f'Wrote {out}.')


if __name__ == '__main__':
  flags.mark_flags_as_required(['out'])
  program.run(main)
