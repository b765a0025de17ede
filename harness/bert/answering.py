"""Connects a BERT to LoadGen: batches of features in, logits out.

The features of a batch are padded to the longest of them, not to 384 tokens. An
answer has only the logits of the feature's own tokens. The evaluation replaces
missing logits by -10000, and it would not use them anyway.
"""

from collections.abc import Callable, Sequence
import os
from typing import Any, Protocol

from absl import flags
import numpy as np

from harness.benchmarks import bert
from harness.bert import features as features_lib
from harness.loadgen import run as run_lib
from harness.loadgen import runner
from harness.loadgen import system

# Lengths are rounded up to a multiple of this number. A step below the width of
# a vector saves no time.
_MULTIPLE = 8


# The default for the maximum number of samples that are computed together.
BATCH_SIZE = 8


class Model(Protocol):
  """A loaded BERT."""

  @property
  def fixed_length(self) -> int | None:
    """The only length [T] that the model takes; None: any length."""

  @property
  def fixed_batch(self) -> int | None:
    """The only batch size [B] that the model takes; None: any size."""

  def logits(
    self, input_ids: np.ndarray, mask: np.ndarray, segment_ids: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns the start and end logits, float32 [B, T] each.

    Args:
      input_ids: The token ids, int64 [B, T].
      mask: The mask, int64 [B, T], 1 for tokens and 0 for padding.
      segment_ids: The segment ids, int64 [B, T].
    """


def make_system(
  model: Model, features: features_lib.FeatureSet, batch_size: int
) -> system.BatchedSystem:
  """Returns a system that answers features with a model.

  Raises:
    ValueError: The model does not take such batches.
  """
  check(model, batch_size)
  return system.BatchedSystem(
    lambda indices: answer(model, features, indices), batch_size
  )


def keep_flags(*names: str) -> None:
  """Keeps only the flags of the model and the set, with the reference's names.

  Args:
    *names: The names of other flags of `run_lib` to keep.
  """
  run_lib.keep(
    *('checkpoint', 'dataset_path', 'tokenizer_path', 'sample_count'),
    *('device', 'batch_size', 'threads', *names),
  )
  flags.DEFINE_alias('model', 'checkpoint')
  flags.DEFINE_alias('val_data', 'dataset_path')
  flags.DEFINE_alias('vocab_file', 'tokenizer_path')
  flags.DEFINE_alias('max_examples', 'sample_count')


def features(model: str, samples: run_lib.Samples) -> features_lib.FeatureSet:
  """Loads the features of the set.

  Args:
    model: The path of the model. The default vocabulary is next to it.
    samples: The set. The defaults are the bundled questions and that
      vocabulary.

  Raises:
    OSError, ValueError: A file cannot be used.
  """
  directory = model if os.path.isdir(model) else os.path.dirname(model)
  return features_lib.load(
    samples.dataset_path or bert.BUNDLE.dataset,
    samples.tokenizer_path or os.path.join(directory, 'vocab.txt'),
    samples.sample_count,
  )


def main(argv: Sequence[str], kind: type, load: Callable[..., Model]) -> None:
  """Runs LoadGen against a BERT.

  Args:
    argv: The command line without flags.
    kind: The type of the system in run.json.
    load: The function that loads a model, with the arguments path, number
      format, device and threads.
  """
  run: run_lib.Run[Any] = runner.requested_run(argv, kind)
  bert = run.system

  def subject() -> runner.Subject:
    loaded = features(bert.model, run.samples)
    model = load(bert.model, bert.precision, bert.device, bert.threads)
    return runner.Subject(
      make_system(model, loaded, bert.batch_size or BATCH_SIZE),
      loaded.lengths.tolist(),
    )

  runner.main(subject, run)


def check_choice(flag: str, value: str, known: Sequence[str]) -> None:
  """Raises ValueError if the value of a flag is not a known one."""
  if value not in known:
    raise ValueError(
      f'--{flag}={value} is unknown. Choose one of {", ".join(known)}.'
    )


def check(model: Model, batch_size: int) -> None:
  """Raises ValueError if a model cannot take every batch up to a size."""
  if model.fixed_batch not in (None, 1):
    raise ValueError(
      f'The model takes only batches of {model.fixed_batch}, but queries can'
      ' be smaller. Export it with a free batch size.'
    )
  if model.fixed_batch == 1 and batch_size > 1:
    raise ValueError(
      f'The model takes one sample at a time, not --batch_size={batch_size}.'
      ' Set --batch_size=1, or export it with a free batch size.'
    )


def answer(
  model: Model,
  features: features_lib.FeatureSet,
  indices: Sequence[int],
  length: int | None = None,
) -> list[system.Answer]:
  """Answers one batch with float32 [T, 2] for each feature's own tokens.

  Args:
    model: The model that answers.
    features: The set.
    indices: The indices of the features in the batch.
    length: The length to pad to; None: the length that the batch needs.
  """
  rows = np.asarray(indices)
  lengths = features.lengths[rows]
  longest = -(-int(lengths.max()) // _MULTIPLE) * _MULTIPLE
  columns = (
    length or model.fixed_length or min(longest, features_lib.MAX_LENGTH)
  )
  start, end = model.logits(
    *(
      np.ascontiguousarray(part[rows, :columns])
      for part in (
        features.input_ids,
        features.input_mask,
        features.segment_ids,
      )
    )
  )
  both = np.stack([start, end], axis=-1).astype(np.float32, copy=False)
  return [
    system.Answer(np.ascontiguousarray(logits[:tokens]))
    for logits, tokens in zip(both, lengths, strict=True)
  ]
