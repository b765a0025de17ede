"""Computes exact match and F1 of answers to questions, as in SQuAD v1.1.

Source: evaluate-v1.1.py of the data set, and its copy in the MLPerf reference,
language/bert/evaluate_v1.1.py of mlcommons/inference.
"""

import collections
from collections.abc import Mapping, Sequence
import dataclasses
import json
import re
import string

_ARTICLES = re.compile(r'\b(a|an|the)\b')
_NO_PUNCTUATION = str.maketrans('', '', string.punctuation)


@dataclasses.dataclass(frozen=True)
class Scores:
  """The scores of an accuracy run.

  Attributes:
    exact_match: The share of answers that match exactly, in percent.
    f1: The mean word overlap with the best correct answer, in percent.
  """

  exact_match: float
  f1: float

  @property
  def line(self) -> str:
    """The line of figures that the submission checker's pattern matches."""
    return json.dumps(dataclasses.asdict(self))


def normalize(text: str) -> str:
  """Removes case, ASCII punctuation, articles and repeated blanks."""
  plain = text.lower().translate(_NO_PUNCTUATION)
  return ' '.join(_ARTICLES.sub(' ', plain).split())


def overlap(answer: str, truth: str) -> float:
  """Returns the F1 of the words of two texts, 0 to 1; 0 if both are empty."""
  words = normalize(answer).split()
  right = normalize(truth).split()
  common = collections.Counter(words) & collections.Counter(right)
  count = common.total()
  if not count:
    return 0.0
  precision, recall = count / len(words), count / len(right)
  return 2 * precision * recall / (precision + recall)


def score(
  answers: Mapping[str, str],
  truths: Mapping[str, Sequence[str]],
  max_examples: int = 0,
) -> Scores:
  """Scores answers.

  Args:
    answers: The answers, by question id. A missing answer scores 0.
    truths: The correct answers, by question id, in the order of the data set.
      The figures are added up in this order.
    max_examples: The number of questions to count from the start; 0 counts all.
      The reference scores the last of them with 0 without checking its answer,
      and so does this function.

  Raises:
    ValueError: There are no questions, or a question has no correct answer.
  """
  total = exact = 0
  f1 = 0.0
  for question, right in truths.items():
    total += 1
    if total == max_examples:
      break
    if not right:
      raise ValueError(
        f'question {question} has no correct answer in the data set. F1 needs'
        ' one for each question, as in dev-v1.1.json.'
      )
    if question not in answers:
      continue
    answer = answers[question]
    exact += max(normalize(answer) == normalize(truth) for truth in right)
    f1 += max(overlap(answer, truth) for truth in right)
  if not total:
    raise ValueError('there are no questions to score.')
  return Scores(100.0 * exact / total, 100.0 * f1 / total)
