import json
import os
from unittest import mock

from absl.testing import absltest
from absl.testing import flagsaver
from absl.testing import parameterized
import torch

from harness.data import bundle
from harness.systems.reference import reference_by_flags
from harness.systems.testing import replies


def setUpModule():
  torch.set_num_threads(1)  # More only wait for one another.


class SubjectTest(parameterized.TestCase):
  @flagsaver.flagsaver(sample_count=1, precision='fp32')
  def test_answers_the_bundled_articles(self):
    inputs = reference_by_flags.load()
    self.assertLen(inputs, 1)
    made = reference_by_flags.make(inputs)
    reply = replies.Reply()
    made.answer(0, reply)
    answer = reply.answer()  # Nobody can know of the first token.
    made.close()
    with open(bundle.reference_path(), encoding='utf-8') as file:
      recorded = json.load(file)['tokens'][0]
    self.assertEqual(answer.data.tolist(), recorded)
    self.assertEqual(answer.data.dtype, 'int64')
    self.assertEqual(answer.tokens, len(recorded))

  @parameterized.parameters(
    ({'device': 'gpu'}, '--device=gpu is not known'),
    ({'max_input_length': 897}, '--max_input_length=897 is above 896'),
    ({'checkpoint': '/none'}, '/none is no Hugging Face directory'),
    ({'dataset_path': '/none'}, '/none'),
    (
      {'sample_count': 0, 'batch_size': 512, 'beam_size': 10**7},
      'and cache [0-9.]+ GiB.*a smaller --batch_size or --beam_size',
    ),
  )
  def test_what_cannot_be_used(self, flags, message):
    with flagsaver.flagsaver(**{'sample_count': 2, **flags}):
      with self.assertRaisesRegex((OSError, ValueError), message):
        reference_by_flags.make(reference_by_flags.load())


class ChoicesTest(parameterized.TestCase):
  def test_cpu(self):
    self.assertEqual(reference_by_flags.find_device('cpu').type, 'cpu')

  def test_a_gpu_that_is_not_there(self):
    with self.assertRaisesRegex(
      ValueError, '--device=cuda:999: PyTorch .* sees .* use --device=cpu'
    ):
      reference_by_flags.find_device('cuda:999')

  @parameterized.parameters('', 'gpu', 'cuda:', 'cuda:x', 'cpu:0', 'tpu')
  def test_other_devices(self, name):
    with self.assertRaisesRegex(ValueError, 'is not known; write cpu, cuda'):
      reference_by_flags.find_device(name)

  def _beams(self, asked, variable):
    with mock.patch.dict(os.environ, {'GPTJ_BEAM_SIZE': variable}):
      return reference_by_flags.beam_size(asked)

  def test_beams_as_asked_or_as_the_variable_says(self):
    self.assertEqual(self._beams(2, '3'), 2)
    self.assertEqual(self._beams(None, '3'), 3)
    self.assertEqual(self._beams(None, ''), 4)

  @parameterized.parameters('0', '-1', 'four', '4.0')
  def test_a_variable_that_is_no_number(self, text):
    with self.assertRaisesRegex(ValueError, f"GPTJ_BEAM_SIZE is '{text}'; set"):
      self._beams(None, text)


if __name__ == '__main__':
  absltest.main()
