"""Tests of comparing a PAX checkpoint with its source."""

import contextlib
import io
import os

from absl.testing import absltest
from absl.testing import flagsaver
from absl.testing import parameterized
import numpy as np

from converters import conversion
from converters import test_models
from converters import verify_ckpt
from saxml_ext.pax import checkpoint
from saxml_ext.pax import checkpoint_writer

_SCALE = 'params.lm.final_ln.scale'


class VerifyTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    root = self.create_tempdir().full_path
    self.base = test_models.save(os.path.join(root, 'hf'))
    self.pax = os.path.join(root, 'pax')

  def verify(self) -> tuple[int, str]:
    """Runs the program: exit status and all it prints."""
    out, status = io.StringIO(), 0
    with (
        flagsaver.flagsaver(base=self.base, pax=self.pax),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(out),
    ):
      try:
        verify_ckpt.main(['verify_ckpt'])
      except SystemExit as e:
        status = e.code
    return status, out.getvalue()

  def rewrite(self, change) -> None:
    """Converts, changes the variables and writes them again."""
    conversion.convert(self.base, self.pax, 'float32')
    variables = checkpoint.read_variables(self.pax)
    change(variables)
    self.pax += '_changed'
    checkpoint_writer.write_checkpoint(self.pax, variables.items())

  @parameterized.parameters('float32', 'bfloat16')
  def test_equal(self, dtype):
    conversion.convert(self.base, self.pax, dtype)
    status, out = self.verify()
    self.assertEqual(status, 0)
    self.assertIn(f'All 21 variables are as in {self.base}.', out)
    self.assertRegex(out, rf'{_SCALE} +{dtype}\[16\] +0 ')

  def test_one_value_differs(self):
    def change(variables):
      scale = variables[_SCALE].copy()
      scale[3] += 0.25
      variables[_SCALE] = scale

    self.rewrite(change)
    status, out = self.verify()
    self.assertEqual(status, 1)
    self.assertRegex(out, rf'{_SCALE} +float32\[16\] +0.25 +differs')
    self.assertIn('1 of 21 variables', out)

  @parameterized.parameters(
      ({_SCALE: None}, f'{_SCALE} +- +- +missing'),
      (
          {'params.lm.extra': np.zeros(2, np.float32)},
          r'params.lm.extra +float32\[2\] +- +unexpected',
      ),
      ({_SCALE: np.zeros(15, np.float32)}, r'expected shape \[16\]'),
      ({_SCALE: np.zeros(16, np.int8)}, 'expected float32 or bfloat16'),
      ({_SCALE: np.full(16, np.nan, np.float32)}, 'nan +differs'),
  )
  def test_wrong_variable(self, changes, message):
    def change(variables):
      for name, value in changes.items():
        if value is None:
          del variables[name]
        else:
          variables[name] = value

    self.rewrite(change)
    status, out = self.verify()
    self.assertEqual(status, 1)
    self.assertRegex(out, message)

  def test_no_checkpoint(self):
    status, out = self.verify()
    self.assertEqual(status, 1)
    self.assertIn('cannot be listed: No such file', out)


if __name__ == '__main__':
  absltest.main()
