from absl.testing import absltest
import numpy as np

from harness.bert import answering
from harness.bert import features
from harness.bert.testing import tiny_set


class _Model:
  """A model that answers with token ids and their negatives; it keeps masks."""

  def __init__(self, fixed_batch=None, fixed_length=None):
    self.fixed_batch = fixed_batch
    self.fixed_length = fixed_length
    self.masks: list[np.ndarray] = []

  def logits(self, input_ids, mask, segment_ids):
    assert input_ids.shape == mask.shape == segment_ids.shape
    self.masks.append(mask)
    return input_ids.astype(np.float32), -input_ids.astype(np.float32)


class AnsweringTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    directory = self.create_tempdir().full_path
    self._features = features.load(
      tiny_set.write_questions(directory, sentences=100),
      tiny_set.write_vocab(directory),
    )

  def test_pads_to_the_longest_and_answers_with_what_was_asked(self):
    model = _Model()
    answers = answering.answer(model, self._features, [4, 3])
    # 322 tokens are rounded up to a multiple of 8.
    self.assertEqual(model.masks[0].shape, (2, 328))
    self.assertEqual(model.masks[0].sum(1).tolist(), [12, 322])
    for answer, index, length in zip(answers, (4, 3), (12, 322)):
      ids = self._features.input_ids[index, :length]
      np.testing.assert_array_equal(answer.data, np.stack([ids, -ids], 1))
      self.assertEqual(answer.data.dtype, np.float32)
      self.assertTrue(answer.data.flags.c_contiguous)

  def test_pads_as_far_as_asked(self):
    for model, length in ((_Model(fixed_length=384), None), (_Model(), 384)):
      answering.answer(model, self._features, [4], length)
      self.assertEqual(model.masks[0].shape, (1, 384))

  def test_refuses_batches_that_the_model_cannot_take(self):
    answering.check(_Model(fixed_batch=1), 1)
    with self.assertRaisesRegex(
      ValueError, 'not --batch_size=8. Set --batch_size=1'
    ):
      answering.check(_Model(fixed_batch=1), 8)
    with self.assertRaisesRegex(ValueError, 'only batches of 4,'):
      answering.check(_Model(fixed_batch=4), 4)


if __name__ == '__main__':
  absltest.main()
