import os
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from harness.systems.reference import reference_options


class ChoicesTest(parameterized.TestCase):
  def test_cpu(self):
    self.assertEqual(reference_options.device('cpu').type, 'cpu')

  def test_a_gpu_that_is_not_there(self):
    with self.assertRaisesRegex(
      ValueError, '--device=cuda:999: PyTorch .* sees .* use --device=cpu'
    ):
      reference_options.device('cuda:999')

  @parameterized.parameters('', 'gpu', 'cuda:', 'cuda:x', 'cpu:0', 'tpu')
  def test_other_devices(self, name):
    with self.assertRaisesRegex(ValueError, 'is not known; write cpu, cuda'):
      reference_options.device(name)

  def _beams(self, asked, variable):
    with mock.patch.dict(os.environ, {'GPTJ_BEAM_SIZE': variable}):
      return reference_options.beam_size(asked)

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
