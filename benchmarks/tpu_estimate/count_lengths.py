"""Counts the lengths of a calibration set's prompts and summaries.

The rules of MLPerf Inference allow tuning a system to the calibration set, but
not to the evaluation set. Run this program only on the calibration set.
"""

from collections.abc import Sequence
import pathlib

from absl import flags

from benchmarks.tpu_estimate import lengths
from saxml_ext.common import files
from saxml_ext.common import program
from saxml_ext.evaluation import dataset
from saxml_ext.evaluation import tokenizer as tokenizer_lib

_SET = flags.DEFINE_string(
  'dataset',
  None,
  'The path of cnn_dailymail_calibration.json, a list of {"instruction",'
  ' "input", "output"}.',
)
_TOKENIZER = flags.DEFINE_string(
  'tokenizer', None, "The path of the model's tokenizer.json, or its directory."
)
_OUT = flags.DEFINE_string('out', None, 'The output file.')


def main(argv: Sequence[str]) -> None:
  del argv
  with program.exit_on('count_lengths'):
    text = count(_SET.value, _TOKENIZER.value)
    with files.replacing(_OUT.value) as file:
      file.write(text)
  print(f'wrote {_OUT.value}')


def count(path: str, tokenizer_path: str) -> str:
  """Returns the content of a file for `lengths.read`.

  The outputs are the set's own summaries, not the model's. They are cut to the
  benchmark's limits.

  Args:
    path: The path of the calibration set.
    tokenizer_path: The path of the model's tokenizer.

  Raises:
    OSError: A file cannot be read.
    ValueError: A file is malformed.
  """
  articles = dataset.load_articles(path)
  tokenizer = tokenizer_lib.load(tokenizer_path)
  prompts = dataset.encode_prompts(articles, tokenizer, lengths.PROMPT_LIMIT)
  answers = tokenizer.encode_batch([article.output for article in articles])
  least, most = lengths.OUTPUT_LIMITS
  return lengths.histogram(
    [len(prompt) for prompt in prompts],
    # Add one, because the token that ends an answer is decoded too.
    [min(max(len(answer.ids) + 1, least), most) for answer in answers],
    f'counted in {pathlib.Path(path).name}, {len(articles)} records; outputs'
    " are its summaries, not the model's",
  )


if __name__ == '__main__':
  flags.mark_flags_as_required([_SET, _TOKENIZER, _OUT])
  program.run(main)
