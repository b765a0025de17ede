"""Converts a Hugging Face checkpoint to a PAX checkpoint.

  {program} --base=HF_DIR --pax=OUT_DIR [--dtype=bfloat16] [--lora=DIR]
  {program} --base=HF_DIR --pax=OUT_DIR --quantize=int8

HF_DIR contains config.json and the weights (safetensors or .bin, sharded or
not). It may also be the id of a model on the Hugging Face hub. The program then
uses the copy in the local cache, and downloads the model first if necessary.
It may also be the path of a GGUF file.

OUT_DIR is a local directory or a gs:// or s3:// URL. The program writes
checkpoint_00000000/ and gptj_config.json to it, and the tokenizer if HF_DIR has
one. Weights are read, checked and written in parts. No code in HF_DIR is ever
executed.

After a kill or a full disk, run the same command with --resume. It continues
the conversion, and the result has the same bytes as without the interruption.
Without --resume, the program removes the files of the interrupted run.
"""

from collections.abc import Sequence
import os
import resource
import sys
import time

from absl import flags

from converters import checkpoint_flags
from converters import output_flags
from converters.convert import conversion
from converters.convert import model_source
from converters.hf import checkpoint as hf_checkpoint
from converters.quantize import model_input
from converters.quantize import provenance
from converters.quantize import quantization
from converters.verify import comparison
from saxml_ext.common import flag_rules
from saxml_ext.common import program
from saxml_ext.common import user_path
from saxml_ext.pax import errors

_DTYPE = flags.DEFINE_enum(
  'dtype', 'float32', list(model_source.DTYPES), 'The type of the variables.'
)
_QUANTIZE = flags.DEFINE_enum(
  'quantize',
  None,
  ['int8'],
  'Write int8 matrices, as offline_quantize does without calibration. No float'
  ' checkpoint is written.',
)
_COMPRESS = flags.DEFINE_bool(
  'compress',
  True,
  'Compress the variables by zstd, as paxml does. Without it, they are larger'
  ' and are written and loaded faster.',
)
_VERIFY = flags.DEFINE_bool(
  'verify', False, 'Compare the whole result with --base afterwards.'
)

# The flag names of Sax's own converter.
flags.DEFINE_alias('base-model-path', 'base')
flags.DEFINE_alias('pax-model-path', 'pax')

flag_rules.act_only(
  'without --quantize', lambda: not _QUANTIZE.value, 'dtype verify'
)


def _quantize(base: hf_checkpoint.Checkpoint, pax: str) -> None:
  begin = time.monotonic()
  step_dir = quantization.quantize(
    model_input.ModelInput(model_source.ModelSource(base)),
    pax,
    provenance.Record(provenance.Options()),
    overwrite=output_flags.OVERWRITE.value,
    resume=output_flags.RESUME.value,
    compress=_COMPRESS.value,
  )
  print(f'Wrote {step_dir} in {time.monotonic() - begin:.1f} s.')


def _convert(base: hf_checkpoint.Checkpoint, pax: str) -> None:
  begin = time.monotonic()
  done = conversion.convert(
    base,
    pax,
    _DTYPE.value,
    output_flags.OVERWRITE.value,
    output_flags.RESUME.value,
    _COMPRESS.value,
  )
  seconds = time.monotonic() - begin
  new = done.num_bytes - done.resumed_bytes
  # Linux reports this size in KiB.
  peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
  before = f' (including {done.resumed_bytes / 1e9:.1f} GB of an earlier run)'
  print(
    f'Wrote {done.step_dir}: {done.num_bytes / 1e9:.1f} GB'
    f'{before if done.resumed_bytes else ""} in {seconds:.1f} s'
    f' ({new / seconds / 1e6:.0f} MB/s), peak memory {peak:.2f} GiB.'
  )


def _verify(base: hf_checkpoint.Checkpoint, pax: str) -> None:
  rows = list(comparison.compare_with_hf(base, pax))
  for row in rows:
    if row.problem:
      raise errors.CheckpointError(
        f'{pax}: variable {row.name} ({row.actual}): {row.problem}. Convert the'
        ' checkpoint again.'
      )
  print(f'All {len(rows)} variables match {base.directory}.')


def main(argv: Sequence[str], only: str = '', size: str = '') -> None:
  """Runs the converter.

  Args:
    argv: The program and its arguments.
    only: The only family that the program converts; '' means all families.
    size: The size of the model, a key of llama_sizes.SIZES; '' means any.
  """
  pax = user_path.resolve(checkpoint_flags.PAX.value)
  try:
    base = checkpoint_flags.open_base(size)
    if only not in ('', base.family.name):
      raise errors.CheckpointError(
        f'{base.directory} is a {base.family.title} model. Convert it with'
        ' convert_hf.'
      )
    if _QUANTIZE.value:
      _quantize(base, pax)
    else:
      _convert(base, pax)
    if _VERIFY.value:
      _verify(base, pax)
  except errors.CheckpointError as e:
    print(f'{os.path.basename(argv[0])}: {e}', file=sys.stderr)
    if isinstance(e, errors.UnwritableError):
      print(
        'The written files are kept. To continue, run the same command with'
        ' --resume.',
        file=sys.stderr,
      )
    sys.exit(1)


if __name__ == '__main__':
  flags.mark_flags_as_required(['base', 'pax'])
  program.run(main)
