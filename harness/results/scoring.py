"""Scores accuracy runs for every program of the harness."""

from collections.abc import Sequence
import dataclasses
import os

import tokenizers

from harness.results import figures
from saxml_ext.evaluation import rouge

ACCURACY_FILE = figures.ACCURACY_FILE


@dataclasses.dataclass(frozen=True)
class Scored:
  """A scored accuracy run.

  Attributes:
    scores: The ROUGE scores.
    answers: The token ids that LoadGen logged, by sample index.
  """

  scores: rouge.Scores
  answers: dict[int, tuple[int, ...]]


def score_log(
  log_path: str,
  highlights: Sequence[str],
  tokenizer: tokenizers.Tokenizer,
  dtype: str = 'int64',
  output: str | None = None,
  clean_up: bool = False,
) -> Scored:
  """Scores an accuracy log and writes the line for submissions.

  The reference's evaluation removes special tokens from the texts, so this
  function removes them too. An end id at the end of an answer therefore does
  not change its score.

  Args:
    log_path: The path of mlperf_log_accuracy.json.
    highlights: The highlights, by sample index.
    tokenizer: The model's tokenizer.
    dtype: The type of the ids in the log: "int64", "int32" or "float32".
    output: The output file, or None for accuracy.txt next to the log.
    clean_up: The value of tokenizer.cleans_up for the model's tokenizer.

  Raises:
    OSError, ValueError: The log is unusable, or belongs to other articles.
  """
  answers = rouge.read_accuracy_log(log_path, dtype)
  scores = rouge.score_tokens(answers, highlights, tokenizer, clean_up)
  path = output or os.path.join(os.path.dirname(log_path), ACCURACY_FILE)
  with open(path, 'w', encoding='utf-8') as file:
    file.write(scores.line + '\n')
  return Scored(scores, answers)
