"""Exact match and F1 of answers to questions, as SQuAD v1.1 scores them.

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
  """Result of an accuracy run.

  Attributes:
    exact_match: answers that are right to the letter, in percent.
    f1: mean overlap of words with the best right answer, in percent.
  """

  exact_match: float
  f1: float

  @property
  def line(self) -> str:
    """One line that the submission checker's pattern matches."""
    return json.dumps(dataclasses.asdict(self))


def normalize(text: str) -> str:
  """Lower case, no ASCII punctuation, no articles, single blanks."""
  plain = text.lower().translate(_NO_PUNCTUATION)
  return ' '.join(_ARTICLES.sub(' ', plain).split())


def overlap(answer: str, truth: str) -> float:
  """F1 of the words of two texts, 0 to 1; 0 if both have none."""
  found = normalize(answer).split()
  right = normalize(truth).split()
  common = collections.Counter(found) & collections.Counter(right)
  count = common.total()
  if not count:
    return 0.0
  precision, recall = count / len(found), count / len(right)
  return 2 * precision * recall / (precision + recall)


def score(
  answers: Mapping[str, str],
  truths: Mapping[str, Sequence[str]],
  max_examples: int = 0,
) -> Scores:
  """Scores answers.

  Args:
    answers: by question id; a question without an answer scores 0.
    truths: right answers by question id, in the order of the data set, in
      which figures are added up.
    max_examples: questions to count, from the front; 0: all. The reference
      counts the last of them without looking at its answer, and so does this.

  Raises:
    ValueError: there is no question, or one has no right answer.
  """
  total = exact = 0
  f1 = 0.0
  for question, right in truths.items():
    total += 1
    if total == max_examples:
      break
    if not right:
      raise ValueError(
        f'question {question} has no right answer in the data set; F1 needs'
        ' one for each, such as dev-v1.1.json has'
      )
    if question not in answers:
      continue
    answer = answers[question]
    exact += max(normalize(answer) == normalize(truth) for truth in right)
    f1 += max(overlap(answer, truth) for truth in right)
  if not total:
    raise ValueError('there are no questions to score')
  return Scores(100.0 * exact / total, 100.0 * f1 / total)
