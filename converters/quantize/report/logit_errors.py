"""How far a quantized model's logits are from the float model's.

Both models go over the texts layer by layer, so that one layer of each is in
memory. Only places where an answer's token is predicted count.
"""

from collections.abc import Iterator, Sequence
import dataclasses

import numpy as np

from converters.quantize import models
from converters.quantize import sample_texts


@dataclasses.dataclass(frozen=True)
class LogitError:
  """Over all logits of all places.

  Attributes:
    quantization: how the model was run, as of `models.Model`;
      "float32" for a float checkpoint.
    positions: how many places there are.
    max_error, mean_error: of a logit.
    divergence: mean Kullback-Leibler divergence of the quantized model's next
      token from the float model's, in nats.
    agreement: share of places where both find the same token likeliest.
  """

  quantization: str
  positions: int
  max_error: float
  mean_error: float
  divergence: float
  agreement: float


def measure(
  exact: models.Model,
  others: Sequence[models.Model],
  texts: sample_texts.Texts,
) -> list[LogitError]:
  """Errors of each of `others`."""
  expected = answer_logits(exact, texts)
  return [
    error(
      model.quantization or 'float32', expected, answer_logits(model, texts)
    )
    for model in others
  ]


def answer_logits(model: models.Model, texts: sample_texts.Texts) -> np.ndarray:
  """Logits [places, V] float32, in the order of batches, rows and places."""
  hidden = model.embed(texts)
  for index in range(model.config.num_layers):
    layer = model.read_layer(index)
    for i, x in enumerate(hidden):
      hidden[i] = np.asarray(model.run_layer(layer, x)[0])
  places = [x[b.answers] for x, b in zip(hidden, texts.batches)]
  return model.logits(np.concatenate(places))


def error(
  quantization: str, expected: np.ndarray, found: np.ndarray
) -> LogitError:
  """Error of logits [places, V] against those expected."""
  largest, total, divergence, agreed = 0.0, 0.0, 0.0, 0
  for a, b in zip(_parts(expected), _parts(found)):
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
