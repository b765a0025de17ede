"""Converts a Hugging Face GPT-J checkpoint to a PAX checkpoint.

  convert_gptj_ckpt --base=HF_DIR --pax=OUT_DIR [--dtype=bfloat16]

HF_DIR holds config.json and the weights (safetensors or .bin, sharded or not).
OUT_DIR then holds checkpoint_00000000/, gptj_config.json and, if HF_DIR has
one, the tokenizer. Weights are read, checked and written one variable at a
time; nothing in HF_DIR is ever executed.
"""

from collections.abc import Sequence
import sys
import time

from absl import app
from absl import flags

from converters import conversion
from converters import gptj_source
from saxml_ext.common import user_path
from saxml_ext.pax import errors

_BASE = flags.DEFINE_string(
    'base', None, 'Directory of the Hugging Face checkpoint.'
)
_PAX = flags.DEFINE_string(
    'pax', None, 'Directory to write the PAX checkpoint to.'
)
_DTYPE = flags.DEFINE_enum(
    'dtype', 'float32', list(gptj_source.DTYPES), 'Type of the variables.'
)
_OVERWRITE = flags.DEFINE_bool(
    'overwrite',
    False,
    'Replace the checkpoint that is in --pax, once the new one is complete.',
)

# The names that Sax' own converter has for the two.
flags.DEFINE_alias('base-model-path', 'base')
flags.DEFINE_alias('pax-model-path', 'pax')


def main(argv: Sequence[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'unexpected arguments: {" ".join(argv[1:])}')
  base, pax = map(user_path.resolve, (_BASE.value, _PAX.value))
  begin = time.monotonic()
  try:
    step_dir = conversion.convert(base, pax, _DTYPE.value, _OVERWRITE.value)
  except errors.CheckpointError as e:
    print(f'convert_gptj_ckpt: {e}', file=sys.stderr)
    sys.exit(1)
  print(f'Wrote {step_dir} in {time.monotonic() - begin:.1f} s.')


if __name__ == '__main__':
  flags.mark_flags_as_required(['base', 'pax'])
  app.run(main)
