"""BERT's features as they travel, and batches of them for its models.

The rules of the Network division let the input of BERT be token ids, input mask
and segment ids. A feature is sent without padding; the system pads a batch to
its longest, as it does for a LoadGen in its own process.
"""

from collections.abc import Sequence

import numpy as np

from harness.bert.models import answering
from harness.bert.questions import features as features_lib
from harness.network import payload
from harness.network import program
from harness.systems import batched
from harness.systems import system

_NAMES = ('input_ids', 'input_mask', 'segment_ids')


def payloads(features: features_lib.FeatureSet) -> list[payload.Payload]:
  """Three arrays of each feature, int64 [T], T its tokens."""
  arrays = [getattr(features, name) for name in _NAMES]
  return [
    {
      name: array[row, :length]
      for name, array in zip(_NAMES, arrays, strict=True)
    }
    for row, length in enumerate(features.lengths)
  ]


def make_system(
  model: answering.Model, inputs: program.Inputs, batch_size: int
) -> batched.BatchedSystem:
  """A system that answers what `payloads` makes, for `program.main`.

  Raises:
    ValueError: the model takes no such batches.
  """
  answering.check(model, batch_size)

  def answer(indices: Sequence[int]) -> list[system.Answer]:
    batch = _batch([inputs[index] for index in indices])
    return answering.answer(model, batch, range(len(indices)))

  return batched.BatchedSystem(answer, batch_size)


def _batch(inputs: Sequence[payload.Payload]) -> features_lib.FeatureSet:
  """Features without text, padded as those of a set are.

  Raises:
    ValueError: an input has other arrays than `payloads` makes.
  """
  shape = (len(inputs), features_lib.MAX_LENGTH)
  arrays = {name: np.zeros(shape, np.int64) for name in _NAMES}
  for row, each in enumerate(inputs):
    shapes = {each[name].shape for name in _NAMES if name in each}
    if len(shapes) > 1 or not each.keys() >= set(_NAMES):
      raise ValueError(
        f'a sample came with {", ".join(each)}; BERT needs'
        f' {", ".join(_NAMES)}, all of one length'
      )
    for name, array in arrays.items():
      array[row, : len(each[name])] = each[name]
  lengths = np.array([len(each[_NAMES[0]]) for each in inputs])
  return features_lib.FeatureSet((), (), **arrays, lengths=lengths)
