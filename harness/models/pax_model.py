"""Prints the directory of a PAX checkpoint, made once and kept in the cache.

  bazel run //harness/models:pax_model -- --base=gpt-j [--quantize]

converts a Hugging Face GPT-J, and quantizes it, unless the cache holds what
came of the same files and options. What it prints last fits --checkpoint of
the scenarios' programs and saxutil publish.
"""

from collections.abc import Sequence
import os
import tempfile

from absl import flags

from harness import errors
from harness.caching import cache_flag
from harness.data import bundle
from harness.models import pax_models
from saxml_ext.common import flag_rules
from saxml_ext.common import program
from saxml_ext.common import user_path
from serve import children
from serve import programs
from serve import progress as progress_lib

_BASE = flags.DEFINE_string(
  'base',
  None,
  'Hugging Face directory of the GPT-J. Default: the bundled one.',
)
_DTYPE = flags.DEFINE_enum(
  'dtype', 'float32', ['float32', 'bfloat16'], 'Type of the variables.'
)
_QUANTIZE = flags.DEFINE_bool(
  'quantize',
  False,
  'Make matrices int8, as the published serving params expect: not the head.',
)
_CALIBRATION = flags.DEFINE_string(
  'calibration',
  None,
  'Articles to calibrate on, in the schema of cnn_dailymail_calibration.json.',
)
flag_rules.act_only('with --quantize', lambda: _QUANTIZE.value, 'calibration')


def main(argv: Sequence[str]) -> None:
  del argv
  progress = progress_lib.Progress()
  wanted = pax_models.Wanted(
    user_path.resolve(_BASE.value) or bundle.model_dir(),
    _DTYPE.value,
    _QUANTIZE.value,
    user_path.resolve(_CALIBRATION.value),
  )
  with program.exit_on('pax_model', (errors.HarnessError, OSError, ValueError)):
    with tempfile.TemporaryDirectory() as logs, children.Children() as group:

      def run(name: str, command: programs.Command) -> None:
        progress.stage(f'running the {name}')
        group.run(name, command, os.path.join(logs, f'{name}.log'))

      models = pax_models.PaxModels(cache_flag.get().create().models, run)
      print(models.get(wanted))


if __name__ == '__main__':
  program.run(main)
