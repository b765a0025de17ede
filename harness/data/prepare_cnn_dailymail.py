"""Makes the GPT-J benchmark's files of CNN/DailyMail 3.0.0.

prepare_cnn_dailymail --input=DIR|FILE [--calibration_list=calibration-list.txt]

writes cnn_eval.json into the cache. With a calibration list, it also writes
cnn_dailymail_calibration.json. //harness/data:download prints the commands that
fetch the input.
"""

from collections.abc import Sequence
import os

from absl import app
from absl import flags

from harness import dashes
from harness.caching import cache as cache_lib
from harness.data import checks
from harness.data import cnn_dailymail
from saxml_ext.common import user_path

_INPUT = flags.DEFINE_multi_string(
  'input',
  None,
  'A directory or file of CNN/DailyMail 3.0.0 with the file names of the hub:'
  ' validation-*.parquet, train-*.parquet, or .json, .jsonl with article,'
  ' highlights and id. Repeatable.',
)
_CALIBRATION_LIST = flags.DEFINE_string(
  'calibration_list',
  None,
  'The language/gpt-j/calibration-list.txt of a checkout of'
  ' mlcommons/inference, with the ids of the articles for the calibration set.',
)
_OUTPUT_DIR = flags.DEFINE_string(
  'output_dir',
  None,
  'The output directory. Default: data/cnn_dailymail in the cache.',
)


def main(argv: Sequence[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(
      f'unexpected argument {argv[1]!r}. Pass files with --input.'
    )
  with dashes.exit_on('prepare_cnn_dailymail'):
    _prepare([user_path.resolve(path) for path in _INPUT.value])


def _prepare(inputs: Sequence[str]) -> None:
  validation = cnn_dailymail.find(inputs, cnn_dailymail.VALIDATION)
  train = cnn_dailymail.find(inputs, cnn_dailymail.TRAIN)
  wants_train = _CALIBRATION_LIST.value is not None
  if not validation and not (wants_train and train):
    raise ValueError(
      'There is no validation-*.parquet, .json or .jsonl in'
      f' {", ".join(inputs)}. //harness/data:download prints the commands to'
      ' fetch it.'
    )
  ids = []
  if wants_train:
    ids = cnn_dailymail.read_ids(user_path.resolve(_CALIBRATION_LIST.value))
  output_dir = user_path.resolve(_OUTPUT_DIR.value)
  if not output_dir:
    cache = cache_lib.get().create()
    output_dir = os.path.join(cache.data, 'cnn_dailymail')
  if validation:
    entries = cnn_dailymail.evaluation_set(validation)
    _write(output_dir, cnn_dailymail.EVAL_FILE, entries)
  if wants_train:
    entries = cnn_dailymail.calibration_set(train, ids)
    _write(output_dir, cnn_dailymail.CALIBRATION_FILE, entries)


def _write(
  output_dir: str, name: str, entries: Sequence[dict[str, str]]
) -> None:
  path = os.path.join(output_dir, name)
  cnn_dailymail.write(path, entries)
  print(f'{path}: {checks.articles(path, len(entries))}')


if __name__ == '__main__':
  flags.mark_flag_as_required('input')
  dashes.run(main)
