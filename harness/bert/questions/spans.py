"""Finds answers in logits, as the MLPerf BERT reference does.

Source of the rules: write_predictions and get_final_text in
language/bert/accuracy-squad.py of mlcommons/inference. The reference keeps the
twenty best answers of a question; only the best is scored, and is found here.
"""

from collections.abc import Iterator, Mapping

import numpy as np
from transformers.models.bert import tokenization_bert_legacy

from harness.bert.questions import features as features_lib

# Best starts and best ends that are combined; longest answer in word pieces.
_N_BEST = 20
_LONGEST = 30

# What the reference says where no answer is possible.
_NO_ANSWER = 'empty'

_basic = tokenization_bert_legacy.BasicTokenizer(do_lower_case=True)


def answers(
  features: features_lib.FeatureSet, logits: Mapping[int, np.ndarray]
) -> dict[str, str]:
  """The answer to every question.

  Args:
    features: what was asked.
    logits: [T, 2] by sample index: start and end. Features without any are
      left out.

  Returns:
    Text by question id.
  """
  best: dict[int, tuple[float, int, int, int]] = {}
  for index, feature in enumerate(features.features):
    if index not in logits:
      continue
    for score, start, end in _candidates(feature, logits[index]):
      # Of equals the first stays.
      known = best.get(feature.question)
      if known is None or score > known[0]:
        best[feature.question] = (score, index, start, end)
  return {
    question.id: _text(features, *best[number][1:])
    if number in best
    else _NO_ANSWER
    for number, question in enumerate(features.questions)
  }


def _candidates(
  feature: features_lib.Feature, logits: np.ndarray
) -> Iterator[tuple[float, int, int]]:
  """Sum of logits, first and last token of all possible answers."""
  length = len(feature.tokens)
  starts, ends = (
    [int(i) for i in _best_positions(logits[:, k]) if i < length]
    for k in range(2)
  )
  values = logits.tolist()
  for start in starts:
    if not feature.best_context[start]:
      continue
    for end in ends:
      if feature.words[end] >= 0 and start <= end < start + _LONGEST:
        yield values[start][0] + values[end][1], start, end


def _best_positions(values: np.ndarray) -> np.ndarray:
  """Where the highest values are, the highest first; of equals the first."""
  return np.argsort(-values, kind='stable')[:_N_BEST]


def _text(
  features: features_lib.FeatureSet, index: int, start: int, end: int
) -> str:
  """The answer in the letters of the paragraph."""
  feature = features.features[index]
  words = features.questions[feature.question].words
  pieces = ' '.join(feature.tokens[start : end + 1])
  answer = pieces.replace(' ##', '').replace('##', '')
  first, last = feature.words[start], feature.words[end]
  return original_text(
    ' '.join(answer.split()), ' '.join(words[first : last + 1])
  )


def original_text(answer: str, original: str) -> str:
  """Finds the letters of the paragraph that an answer stands for.

  Args:
    answer: word pieces put together: lower case, no accents, punctuation
      apart, such as "steve smith".
    original: the words it was found in, such as "Steve Smith's".

  Returns:
    The part of `original`, such as "Steve Smith"; the whole where letters of
    the two cannot be matched one to one.
  """
  plain = ' '.join(_basic.tokenize(original))
  begin = plain.find(answer)
  if begin < 0 or not answer:
    return original
  plain_places = _letter_places(plain)
  original_places = _letter_places(original)
  if len(plain_places) != len(original_places):
    return original
  number_of = {place: number for number, place in enumerate(plain_places)}
  first = original_places[number_of[begin]]
  last = original_places[number_of[begin + len(answer) - 1]]
  return original[first : last + 1]


def _letter_places(text: str) -> list[int]:
  """Where a text has something else than a blank."""
  return [place for place, letter in enumerate(text) if letter != ' ']
