"""Measures how a quantized model's logits differ from the float model's.

Both models process the texts layer by layer, so one layer of each is in memory.
Only positions that predict a token of an answer count.
"""

from collections.abc import Iterator, Sequence
import dataclasses

import numpy as np

from converters.quantize import models
from converters.quantize import sample_texts


@dataclasses.dataclass(frozen=True)
class LogitError:
  """The differences between the logits of two models, over all positions.

  Attributes:
    quantization: The way to run the model, as in `models.Model`; "float32" for
      a float checkpoint.
    positions: The number of positions.
    max_error, mean_error: The largest and the mean error of a logit.
    divergence: The mean Kullback-Leibler divergence of the next token's
      distribution from that of the float model, in nats.
    agreement: The share of positions with the same most likely token.
  """

  quantization: str
  positions: int
  max_error: float
  mean_error: float
  divergence: float
  agreement: float


def measure(
  exact: models.Model,
  quantized: Sequence[models.Model],
  texts: sample_texts.Texts,
) -> list[LogitError]:
  """Measures the logit errors of each of `quantized` against `exact`."""
  expected = answer_logits(exact, texts)
  return [
    error(
      model.quantization or 'float32', expected, answer_logits(model, texts)
    )
    for model in quantized
  ]


def answer_logits(model: models.Model, texts: sample_texts.Texts) -> np.ndarray:
  """Returns the logits of answer tokens.

  Args:
    model: The model to run.
    texts: The texts with answers.

  Returns:
    Logits [positions, V] float32, in the order of batches, rows and positions.
  """
  hidden = model.embed(texts)
  for index in range(model.config.num_layers):
    layer = model.read_layer(index)
    for i, x in enumerate(hidden):
      hidden[i] = np.asarray(model.run_layer(layer, x, index)[0])
  answers = [x[b.answers] for x, b in zip(hidden, texts.batches)]
  return model.logits(np.concatenate(answers))


def error(
  quantization: str, expected: np.ndarray, actual: np.ndarray
) -> LogitError:
  """Returns the error of logits [positions, V] against the expected logits."""
  largest, total, divergence, agreed = 0.0, 0.0, 0.0, 0
  for a, b in zip(_parts(expected), _parts(actual)):
    difference = np.abs(a - b)
    largest = float(np.maximum(largest, difference.max()))
    total += float(difference.sum())
    log_p, log_q = _log_softmax(a), _log_softmax(b)
    divergence += float((np.exp(log_p) * (log_p - log_q)).sum())
    agreed += int((a.argmax(1) == b.argmax(1)).sum())
  count = len(expected)
  return LogitError(
    quantization,
    count,
    largest,
    total / expected.size,
    divergence / count,
    agreed / count,
  )


def _parts(x: np.ndarray) -> Iterator[np.ndarray]:
  for begin in range(0, len(x), 512):
    yield x[begin : begin + 512].astype(np.float64)


def _log_softmax(x: np.ndarray) -> np.ndarray:
  x = x - x.max(1, keepdims=True)
  return x - np.log(np.exp(x).sum(1, keepdims=True))
