"""Tests of comparing a PAX checkpoint with its source."""

import contextlib
import io
import os
from typing import Any
import unittest

from absl import app
from absl.testing import absltest
from absl.testing import flagsaver
from absl.testing import parameterized
import numpy as np

from converters import verify_ckpt
from converters.convert import conversion
from converters.convert import sources
from converters.quantize import provenance
from converters.quantize import quantization
from converters.quantize import sample_texts
from converters.quantize.report import evaluation
from converters.testing import compiled
from converters.testing import gguf_files
from converters.testing import small_models
from converters.testing import small_pax
from converters.testing import unsynced
from saxml_ext.pax.testing import checkpoints

_SCALE = 'params.lm.final_ln.scale'
_POST = 'params.lm.transformer.x_layers_1.self_attention.post.w'
_NORM = 'params.lm.transformer.x_layers_1.layer_norm.scale'
_Q = '_quantized_scale'


def _run(flags) -> tuple[int, str]:
  """Runs the program; returns its exit status and output."""
  out = io.StringIO()
  status: Any = 0
  with (
    flagsaver.flagsaver(**flags),
    contextlib.redirect_stdout(out),
    contextlib.redirect_stderr(out),
  ):
    try:
      verify_ckpt.main(['verify_ckpt'])
    except SystemExit as e:
      status = e.code
  return status, out.getvalue()


def setUpModule():
  unittest.enterModuleContext(compiled.once())


class VerifyTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.enter_context(unsynced.files())
    root = self.create_tempdir().full_path
    self.base = small_models.save(os.path.join(root, 'hf'))
    self.pax = os.path.join(root, 'pax')

  def verify(self) -> tuple[int, str]:
    """Runs the program; returns its exit status and output."""
    return _run(dict(base=self.base, pax=self.pax))

  def rewrite(self, change) -> None:
    """Converts the source, changes the variables and writes them again."""
    conversion.convert(self.base, self.pax, 'float32')
    variables = checkpoints.read_variables(self.pax)
    change(variables)
    self.pax += '_changed'
    checkpoints.write_checkpoint(self.pax, variables.items())

  def test_gguf_files_have_no_logits_of_transformers(self):
    path = gguf_files.write(
      f'{self.base}.gguf', gguf_files.state_dict(), gguf_files.metadata()
    )
    conversion.convert(sources.open_checkpoint(path), self.pax, 'float32')
    self.assertEqual(_run(dict(base=path, pax=self.pax))[0], 0)
    status, output = _run(dict(base=path, pax=self.pax, logits=True))
    self.assertEqual(status, 1)
    self.assertRegex(output, f'--logits has no effect, .* not {path}')

  @parameterized.parameters('float32', 'bfloat16')
  def test_equal(self, dtype):
    conversion.convert(self.base, self.pax, dtype)
    status, out = self.verify()
    self.assertEqual(status, 0)
    self.assertIn(f'All 21 variables match {self.base}.', out)
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


class VerifyInt8Test(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.enter_context(unsynced.files())
    self.root = self.create_tempdir().full_path
    self.source = small_pax.write(os.path.join(self.root, 'float'))
    self.pax = os.path.join(self.root, 'int8')

  def quantize(self, **options) -> None:
    record = provenance.Record(provenance.Options(**options))
    quantization.quantize(self.source, self.pax, record)

  def verify(self, **flags) -> tuple[int, str]:
    flags = dict(source=self.source, pax=self.pax) | flags
    return _run(flags)

  def change(self, change) -> None:
    """Writes changed variables as a newer step."""
    variables = checkpoints.read_variables(self.pax)
    change(variables)
    checkpoints.write_checkpoint(self.pax, variables.items(), step=1)

  @parameterized.parameters(
    {}, {'softmax': True}, {'smoothing': 0.0}, {'bits': 5}
  )
  def test_equal(self, **options):
    self.quantize(**options)
    status, out = self.verify()
    self.assertEqual(status, 0, out)
    self.assertIn('All 29 variables match', out)
    self.assertRegex(out, r'post.w +int8\[32, 2, 16\] +\S+ +0.50 steps')
    self.assertRegex(out, r'(41|42) checksums match')

  def test_copies_are_equal(self):
    self.pax = self.source
    status, out = self.verify(logits=True, text=['w1 w2 w3'])
    self.assertEqual(status, 0, out)
    self.assertRegex(out, 'logits: float32, float32 +2 positions +0 +mean 0')

  @parameterized.parameters(
    (lambda v: v.update({_POST: v[_POST] // 2}), r'6\d\.\d+ steps exceed'),
    (lambda v: v.update({_POST + _Q: v[_POST + _Q] * 2}), 'steps exceed'),
    (lambda v: v.update({_POST + _Q: v[_POST + _Q] * np.nan}), 'nan steps'),
    (lambda v: v.pop(_POST + _Q), 'quantized_scale is missing'),
    (lambda v: v.pop(_POST), f'{_POST} +- +- +missing'),
    (lambda v: v.update({_NORM: v[_NORM] * 2}), f'{_NORM} .*differs'),
    (lambda v: v.update({'params.lm.x': v[_NORM]}), 'params.lm.x .*unexp'),
  )
  def test_wrong_variable(self, change, message):
    self.quantize()
    self.change(change)
    status, out = self.verify()
    self.assertEqual(status, 1)
    self.assertRegex(out, message)

  def test_clipped_needs_its_report(self):
    self.quantize(clipping=True, bits=4)
    status, out = self.verify()
    self.assertEqual(status, 1)
    self.assertIn('exceed the rounding error 0.501', out)
    evaluation.report(self.source, self.pax, ())
    status, out = self.verify()
    self.assertEqual(status, 0, out)
    self.change(lambda v: v.update({_POST: np.roll(v[_POST], 1, 0)}))
    status, out = self.verify()
    self.assertEqual(status, 1)
    self.assertRegex(out, 'steps exceed the stated error')

  def test_logits_are_within_the_stated_error(self):
    self.quantize()
    path = small_pax.write_articles(f'{self.root}/eval.json', 4)
    articles = sample_texts.load_articles(path)
    evaluation.report(self.source, self.pax, articles)
    status, out = self.verify(logits=True, articles=path)
    self.assertEqual(status, 0, out)
    self.assertRegex(
      out, r'logits: float32, int8_weights +32 positions +[01]\.\d+'
    )
    status, out = self.verify(logits=True, articles=path, logit_tolerance=1.0)
    self.assertEqual(status, 1)
    self.assertIn('--logit_tolerance=1 has no effect', out)
    # A wrong norm must also change the logits.
    self.change(lambda v: v.update({_NORM: v[_NORM] * 2}))
    status, out = self.verify(logits=True, articles=path)
    self.assertEqual(status, 1)
    self.assertRegex(out, r'logits: float32, int8 .*exceeds the stated error')

  def test_damaged_chunk(self):
    self.quantize()
    chunk = f'{self.pax}/checkpoint_00000000/state/mdl_vars.{_NORM}/0'
    os.remove(chunk)
    status, out = self.verify()
    self.assertEqual(status, 1)
    self.assertRegex(out, 'layer_norm.scale cannot be read')

  def test_base_or_source_is_required(self):
    with self.assertRaisesRegex(app.UsageError, 'one of --base and --source'):
      self.verify(source=None)


if __name__ == '__main__':
  absltest.main()
