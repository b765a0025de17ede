"""Finds answers in logits and scores them, as the MLPerf BERT reference does.

Source of the rules: write_predictions and get_final_text in
language/bert/accuracy-squad.py of mlcommons/inference. The reference keeps the
twenty best answers of a question. Only the best one is scored, so only the best
one is computed here.
"""

from collections.abc import Iterator, Mapping
import dataclasses
import json
import os

import numpy as np
from transformers.models.bert import tokenization_bert_legacy

from harness.bert import features as features_lib
from saxml_ext.common import files
from saxml_ext.evaluation import f1

ACCURACY_FILE = 'accuracy.txt'

DTYPES = ('int8', 'int16', 'int32', 'int64', 'float16', 'float32', 'float64')

# The logit of tokens that a system left out, which are those after the last
# one.
_PADDING_LOGIT = -10000.0


@dataclasses.dataclass(frozen=True)
class Format:
  """The format of a system's answers.

  Attributes:
    dtype: The name of the logits' type in numpy.
    transposed: True if all starts come before all ends. Otherwise the two
      logits of a token are adjacent.
  """

  dtype: str = 'float32'
  transposed: bool = False


@dataclasses.dataclass(frozen=True)
class Scored:
  """The scores of an accuracy run.

  Attributes:
    scores: The exact match and F1.
    answers: The texts by question id.
    logits: The logits [384, 2] by sample index, as LoadGen logged them.
  """

  scores: f1.Scores
  answers: Mapping[str, str]
  logits: Mapping[int, np.ndarray]


def score_log(
  log_path: str,
  features: features_lib.FeatureSet,
  answer_format: Format = Format(),
  max_examples: int = 0,
  output: str | None = None,
) -> Scored:
  """Scores an accuracy log and writes the line that submissions contain.

  Args:
    log_path: The path of mlperf_log_accuracy.json.
    features: The features of the run.
    answer_format: The format of the logged answers.
    max_examples: The number of questions to count; 0: all of `features`.
    output: The file for the line; None: accuracy.txt beside the log.

  Raises:
    OSError, ValueError: The log cannot be used, or is from another set.
  """
  logits = read_log(log_path, len(features), answer_format)
  predictions = answers(features, logits)
  truths = {q.id: q.answers for q in features.questions}
  scored = Scored(
    f1.score(predictions, truths, max_examples), predictions, logits
  )
  path = output or os.path.join(os.path.dirname(log_path), ACCURACY_FILE)
  with files.replacing(path) as file:
    file.write(scored.scores.line + '\n')
  return scored


def read_log(
  path: str, count: int, answer_format: Format
) -> dict[int, np.ndarray]:
  """Returns the logits of an accuracy log, float64 [384, 2] by sample index.

  If a sample was logged more than once, the last answer counts.

  Args:
    path: The path of mlperf_log_accuracy.json.
    count: The number of samples of the set.
    answer_format: The format of the logged answers.

  Raises:
    OSError: The file cannot be read.
    ValueError: The file is not an accuracy log, or has another set or format.
  """
  with open(path, encoding='utf-8') as file:
    try:
      entries = json.load(file)
      logged = {int(e['qsl_idx']): bytes.fromhex(e['data']) for e in entries}
    except (KeyError, TypeError, ValueError) as error:
      raise ValueError(
        f'{path} is not an accuracy log of LoadGen: {error!r}'
      ) from error
  if not logged:
    raise ValueError(
      f'{path} has no answers. It must come from a run in accuracy mode.'
    )
  if max(logged) >= count:
    raise ValueError(
      f'{path} has an answer to sample {max(logged)}, but the set has {count}'
      ' samples. Pass the questions, the vocabulary and the --max_examples of'
      ' that run.'
    )
  return {
    index: _logits(path, index, data, answer_format)
    for index, data in logged.items()
  }


def _logits(
  path: str, index: int, data: bytes, answer_format: Format
) -> np.ndarray:
  size = 2 * np.dtype(answer_format.dtype).itemsize
  length = len(data) // size
  if len(data) % size or not 0 < length <= features_lib.MAX_LENGTH:
    raise ValueError(
      f'{path}: The answer to sample {index} has {len(data)} bytes.'
      f' {answer_format.dtype} logits need {size} bytes for each of 1 to'
      f' {features_lib.MAX_LENGTH} tokens. Choose the type that the run wrote.'
    )
  values = np.frombuffer(data, answer_format.dtype)
  padded = np.full((features_lib.MAX_LENGTH, 2), _PADDING_LOGIT)
  padded[:length] = (
    values.reshape(2, -1).T
    if answer_format.transposed
    else values.reshape(-1, 2)
  )
  return padded


# The number of best starts and best ends to combine, and the length of the
# longest answer in word pieces.
_N_BEST = 20
_LONGEST = 30

# The reference's answer if no answer is possible.
_NO_ANSWER = 'empty'

_basic = tokenization_bert_legacy.BasicTokenizer(do_lower_case=True)


def answers(
  features: features_lib.FeatureSet, logits: Mapping[int, np.ndarray]
) -> dict[str, str]:
  """Returns the answer to every question.

  Args:
    features: The features of the questions.
    logits: The start and end logits [T, 2] by sample index. Features without
      logits are left out.

  Returns:
    The texts by question id.
  """
  best: dict[int, tuple[float, int, int, int]] = {}
  for index, feature in enumerate(features.features):
    if index not in logits:
      continue
    for score, start, end in _candidates(feature, logits[index]):
      # The first of several equal scores wins.
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
  """Yields all possible answers: sum of logits, first token, last token."""
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
  """Returns the positions of the highest values, highest and earliest first."""
  return np.argsort(-values, kind='stable')[:_N_BEST]


def _text(
  features: features_lib.FeatureSet, index: int, start: int, end: int
) -> str:
  """Returns the answer as it is written in the paragraph."""
  feature = features.features[index]
  words = features.questions[feature.question].words
  pieces = ' '.join(feature.tokens[start : end + 1])
  answer = pieces.replace(' ##', '').replace('##', '')
  first, last = feature.words[start], feature.words[end]
  return original_text(
    ' '.join(answer.split()), ' '.join(words[first : last + 1])
  )


def original_text(answer: str, original: str) -> str:
  """Returns the part of the paragraph that an answer stands for.

  Args:
    answer: The joined word pieces in lower case, without accents and with
      separated punctuation, such as "steve smith".
    original: The words of the paragraph that contain the answer, such as "Steve
      Smith's".

  Returns:
    The part of `original`, such as "Steve Smith". If the letters of the two
    texts do not match one to one, the whole text.
  """
  plain = ' '.join(_basic.tokenize(original))
  begin = plain.find(answer)
  if begin < 0 or not answer:
    return original
  plain_positions = _letter_positions(plain)
  original_positions = _letter_positions(original)
  if len(plain_positions) != len(original_positions):
    return original
  end = begin + len(answer) - 1
  first = original_positions[plain_positions.index(begin)]
  last = original_positions[plain_positions.index(end)]
  return original[first : last + 1]


def _letter_positions(text: str) -> list[int]:
  """Returns the positions of a text that are not blanks."""
  return [i for i, letter in enumerate(text) if letter != ' ']
