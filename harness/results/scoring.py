"""The scorer of accuracy runs, which every program of the harness uses."""

from collections.abc import Sequence
import dataclasses
import os

import tokenizers

from harness.results import figures
from saxml_ext.evaluation import rouge

ACCURACY_FILE = figures.ACCURACY_FILE


@dataclasses.dataclass(frozen=True)
class Scored:
  """An accuracy run that was scored.

  Attributes:
    scores: its ROUGE.
    answers: sample index -> token ids as LoadGen logged them.
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
  """Scores an accuracy log and writes the line that submissions contain.

  Special tokens are left out of the texts, as the reference's evaluation leaves
  them out: whether answers end in an end id does not change their scores.

  Args:
    log_path: mlperf_log_accuracy.json.
    highlights: by sample index.
    tokenizer: of the model.
    dtype: type of the ids in the log, "int64", "int32" or "float32".
    output: file for the line; None: accuracy.txt beside the log.
    clean_up: what tokenizer.cleans_up says of the model's tokenizer.

  Raises:
    OSError, ValueError: the log cannot be used, or is of other articles.
  """
  answers = rouge.read_accuracy_log(log_path, dtype)
  scores = rouge.score_tokens(answers, highlights, tokenizer, clean_up)
  path = output or os.path.join(os.path.dirname(log_path), ACCURACY_FILE)
  with open(path, 'w', encoding='utf-8') as file:
    file.write(scores.line + '\n')
  return Scored(scores, answers)
