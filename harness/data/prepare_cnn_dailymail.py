"""Makes the files of GPT-J or of Llama 3.1 8B from CNN/DailyMail 3.0.0.

prepare_cnn_dailymail --input=DIR|FILE [--calibration_list=calibration-list.txt]
    [--tokenizer_path=DIR|FILE]

writes cnn_eval.json into the cache. With a calibration list, it also writes
cnn_dailymail_calibration.json. With Llama's tokenizer, the files have tok_input
and there is a file for llama3.1-8b-edge too. //harness/data:download prints the
commands that fetch the input.
"""

from collections.abc import Iterable, Mapping, Sequence
import os
from typing import Any

from absl import app
from absl import flags

from harness import dashes
from harness.caching import cache as cache_lib
from harness.data import checks
from harness.data import cnn_dailymail
from saxml_ext.common import user_path
from saxml_ext.evaluation import dataset
from saxml_ext.evaluation import tokenizer as tokenizer_lib

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
  'The output directory. Default: data/cnn_dailymail in the cache, or'
  ' data/cnn_dailymail_llama with --tokenizer_path.',
)
_TOKENIZER_PATH = flags.DEFINE_string(
  'tokenizer_path',
  None,
  "Llama's tokenizer.json or its directory. The files then are those of"
  ' llama3.1-8b, with the token ids of the prompts. Default: make the files of'
  ' GPT-J.',
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
  tokenizer = None
  if _TOKENIZER_PATH.value:
    tokenizer = tokenizer_lib.load(user_path.resolve(_TOKENIZER_PATH.value))
  ids = []
  if wants_train:
    ids = cnn_dailymail.read_ids(user_path.resolve(_CALIBRATION_LIST.value))
  output_dir = user_path.resolve(_OUTPUT_DIR.value)
  if not output_dir:
    cache = cache_lib.get().create()
    folder = cnn_dailymail.LLAMA_FOLDER if tokenizer else cnn_dailymail.FOLDER
    output_dir = os.path.join(cache.data, folder)

  def write(
    name: str,
    entries: Sequence[Mapping[str, str]],
    instruction: str | Mapping[str, str] = cnn_dailymail.LLAMA_INSTRUCTION,
  ) -> None:
    path = os.path.join(output_dir, name)
    lines: Iterable[Mapping[str, Any]] = entries
    if tokenizer:
      lines = cnn_dailymail.with_tokens(entries, tokenizer, instruction)
    cnn_dailymail.write(path, lines)
    verdict = checks.articles(path, len(entries), llama=tokenizer is not None)
    print(f'{path}: {verdict}')

  if validation:
    entries = cnn_dailymail.evaluation_set(validation)
    write(cnn_dailymail.EVAL_FILE, entries)
    if tokenizer:
      write(cnn_dailymail.EDGE_FILE, cnn_dailymail.edge_set(entries))
  if wants_train:
    entries = cnn_dailymail.calibration_set(train, ids)
    write(cnn_dailymail.CALIBRATION_FILE, entries, dataset.LLAMA_TEMPLATE)


if __name__ == '__main__':
  flags.mark_flag_as_required('input')
  dashes.run(main)
