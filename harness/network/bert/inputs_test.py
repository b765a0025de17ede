import queue

from absl.testing import absltest
import numpy as np

from harness.bert.models import answering
from harness.bert.questions import features as features_lib
from harness.network import client
from harness.network.bert import inputs as inputs_lib
from harness.network.testing import background

_PATIENCE_SECS = 300.0
_LENGTHS = (5, 20, 384)


class _Model:
  """Logits that depend on all inputs of a token, and on no other token."""

  fixed_length = fixed_batch = None

  def __init__(self):
    self.shapes = []

  def logits(self, input_ids, mask, segment_ids):
    self.shapes.append(input_ids.shape)
    start = input_ids + 0.5 * segment_ids + 0.25 * mask
    return start.astype(np.float32), -start.astype(np.float32)


class _Reply:
  def __init__(self):
    self.news: queue.SimpleQueue = queue.SimpleQueue()
    self.done = self.failed = self.news.put


def _features() -> features_lib.FeatureSet:
  shape = (len(_LENGTHS), features_lib.MAX_LENGTH)
  arrays = {name: np.zeros(shape, np.int64) for name in inputs_lib._NAMES}
  for row, length in enumerate(_LENGTHS):
    arrays['input_ids'][row, :length] = np.arange(length) + 100 * row
    arrays['input_mask'][row, :length] = 1
    arrays['segment_ids'][row, 3:length] = 1
  return features_lib.FeatureSet((), (), **arrays, lengths=np.array(_LENGTHS))


class InputsTest(absltest.TestCase):
  def test_features_go_without_padding(self):
    found = inputs_lib.payloads(_features())
    self.assertEqual(
      [{name: a.shape for name, a in each.items()} for each in found],
      [dict.fromkeys(inputs_lib._NAMES, (length,)) for length in _LENGTHS],
    )
    self.assertEqual(found[0]['segment_ids'].tolist(), [0, 0, 0, 1, 1])

  def _sut(self, model, batch_size):
    return self.enterContext(
      background.Sut(
        lambda inputs: inputs_lib.make_system(model, inputs, batch_size)
      )
    )

  def test_answers_are_those_of_a_system_here(self):
    features = _features()
    expected = answering.answer(_Model(), features, range(len(_LENGTHS)))
    model = _Model()
    made = client.NetworkSystem(
      [self._sut(model, 2).address], inputs_lib.payloads(features)
    )
    self.addCleanup(made.close)
    replies = [_Reply() for _ in _LENGTHS]
    for index, reply in enumerate(replies):
      made.answer(index, reply)
    for reply, wanted in zip(replies, expected, strict=True):
      answer = reply.news.get(timeout=_PATIENCE_SECS)
      self.assertEqual(answer.data.dtype, np.float32)
      np.testing.assert_array_equal(answer.data, wanted.data)
    for rows, columns in model.shapes:
      self.assertLessEqual(rows, 2)
      self.assertLessEqual(columns, features_lib.MAX_LENGTH)

  def test_other_inputs_are_told(self):
    ids = np.arange(5)
    for wrong in ({'ids': ids}, {'input_ids': ids, 'input_mask': ids[1:]}):
      made = client.NetworkSystem([self._sut(_Model(), 1).address], [wrong])
      self.addCleanup(made.close)
      reply = _Reply()
      made.answer(0, reply)
      self.assertRegex(
        str(reply.news.get(timeout=_PATIENCE_SECS)),
        'a sample came with .*; BERT needs input_ids, input_mask, segment_ids',
      )


if __name__ == '__main__':
  absltest.main()
