"""Scores an accuracy log of BERT, as the MLPerf reference scores it."""

from collections.abc import Mapping
import dataclasses
import json
import os

import numpy as np

from harness.bert.questions import features as features_lib
from harness.bert.questions import spans
from saxml_ext.common import files
from saxml_ext.evaluation import f1

ACCURACY_FILE = 'accuracy.txt'

DTYPES = (
  'int8',
  'int16',
  'int32',
  'int64',
  'float16',
  'float32',
  'float64',
)

# Of tokens that a system left out, which are those after the last.
_PADDING_LOGIT = -10000.0


@dataclasses.dataclass(frozen=True)
class Format:
  """How a system writes its answers.

  Attributes:
    dtype: numpy's name of the logits' type.
    transposed: whether all starts come before all ends; else both logits of a
      token stand together.
  """

  dtype: str = 'float32'
  transposed: bool = False


@dataclasses.dataclass(frozen=True)
class Scored:
  """An accuracy run that was scored.

  Attributes:
    scores: exact match and F1.
    answers: text by question id.
    logits: [384, 2] by sample index, as LoadGen logged them.
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
    log_path: mlperf_log_accuracy.json.
    features: of the run.
    answer_format: of the logged answers.
    max_examples: questions to count; 0: all of `features`.
    output: file for the line; None: accuracy.txt beside the log.

  Raises:
    OSError, ValueError: the log cannot be used, or is of another set.
  """
  logits = read_log(log_path, len(features), answer_format)
  found = spans.answers(features, logits)
  truths = {q.id: q.answers for q in features.questions}
  scored = Scored(f1.score(found, truths, max_examples), found, logits)
  path = output or os.path.join(os.path.dirname(log_path), ACCURACY_FILE)
  with files.replacing(path) as file:
    file.write(scored.scores.line + '\n')
  return scored


def read_log(
  path: str, count: int, answer_format: Format
) -> dict[int, np.ndarray]:
  """Logits of an accuracy log, float64 [384, 2] by sample index.

  Of a sample that was logged more than once the last answer counts.

  Args:
    path: mlperf_log_accuracy.json.
    count: samples of the set.
    answer_format: of the logged answers.

  Raises:
    OSError: it cannot be read.
    ValueError: it is no such log, or of another set or format.
  """
  with open(path, encoding='utf-8') as file:
    try:
      entries = json.load(file)
      logged = {int(e['qsl_idx']): bytes.fromhex(e['data']) for e in entries}
    except (KeyError, TypeError, ValueError) as error:
      raise ValueError(
        f'{path} is no accuracy log of LoadGen: {error!r}'
      ) from error
  if not logged:
    raise ValueError(
      f'{path} holds no answers; it must come from a run in accuracy mode'
    )
  if max(logged) >= count:
    raise ValueError(
      f'{path} has an answer to sample {max(logged)}, the set has {count}'
      ' samples; give the questions, the vocabulary and the --max_examples of'
      ' that run'
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
      f'{path}: the answer to sample {index} has {len(data)} bytes; it needs'
      f' {size} for each of 1 to {features_lib.MAX_LENGTH} tokens when logits'
      f' are {answer_format.dtype}; choose the type that the run wrote'
    )
  values = np.frombuffer(data, answer_format.dtype)
  padded = np.full((features_lib.MAX_LENGTH, 2), _PADDING_LOGIT)
  padded[:length] = (
    values.reshape(2, -1).T
    if answer_format.transposed
    else values.reshape(-1, 2)
  )
  return padded
