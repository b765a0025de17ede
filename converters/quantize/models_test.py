"""Tests that running one layer at a time gives the results of the engine."""

import os

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from converters.quantize import calibration_run
from converters.quantize import models
from converters.quantize import provenance
from converters.quantize import quantization
from converters.quantize import sample_texts
from converters.quantize import smoothing
from converters.quantize.report import logit_errors
from converters.testing import small_pax
from converters.testing import unsynced
from saxml_ext.engine import model as engine_model
from saxml_ext.engine import variables as variables_lib
from saxml_ext.engine import weights as weights_lib
from saxml_ext.pax.testing import checkpoints


def _texts() -> sample_texts.Texts:
  rng = np.random.default_rng(2)
  return sample_texts.from_sequences(
    [
      (rng.integers(1, 64, length).astype(np.int32), length // 2)
      for length in (5, 70, 9, 33, 64, 12, 40, 22, 31, 18)
    ]
  )


def _engine_logits(path, texts, quantization_name=None) -> np.ndarray:
  """Returns the engine's logits at answer positions, all layers in memory."""
  variables = checkpoints.read_variables(path)
  config = small_pax.CONFIG
  weights = weights_lib.from_pax(
    variables, config, quantization=quantization_name, quantize_head=False
  )
  logits = []
  for batch in texts.batches:
    x, _ = engine_model.prefill(weights, config, batch.tokens, 'float32')
    logits.append(
      np.asarray(engine_model.logits(weights, config, x))[batch.answers]
    )
  return np.concatenate(logits)


class LayersTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.enter_context(unsynced.files())
    root = self.create_tempdir().full_path
    self.pax = small_pax.write(os.path.join(root, 'pax'))
    self.int8 = os.path.join(root, 'int8')
    self.texts = _texts()

  def layered(self, path, quantization_name=None):
    return models.open_model(path).run_as(quantization_name)

  def test_float_logits_match_the_engine(self):
    logits = logit_errors.answer_logits(self.layered(self.pax), self.texts)
    expected = _engine_logits(self.pax, self.texts)
    np.testing.assert_allclose(logits, expected, rtol=0, atol=2e-4)

  @parameterized.parameters('int8', 'int8_weights')
  def test_int8_logits_match_the_engine(self, name):
    record = provenance.Record(provenance.Options())
    quantization.quantize(self.pax, self.int8, record)
    logits = logit_errors.answer_logits(
      self.layered(self.int8, name), self.texts
    )
    expected = _engine_logits(self.int8, self.texts, name)
    error = logit_errors.error(name, expected, logits)
    # One activation code that is rounded differently already causes an error.
    self.assertLess(error.mean_error, 0.02)
    self.assertGreater(error.agreement, 0.95)

  def test_calibration_sees_the_inputs_of_each_matrix(self):
    model = self.layered(self.pax)
    calibration = calibration_run.Calibration(model, self.texts, 64)
    prefix = f'{variables_lib.PREFIX}.transformer.x_layers_0.'
    stats = calibration.next_layer(
      checkpoints.read_variables(
        self.pax, [n for n in model.reader.specs if n.startswith(prefix)]
      )
    )
    layer = model.read_layer(0)
    rows = {name: [] for name in engine_model.Taps._fields}
    for x, batch in zip(model.embed(self.texts), self.texts.batches):
      _, inputs = model.run_layer(layer, x, 0)
      for name, values in inputs._asdict().items():
        rows[name].append(np.asarray(values)[batch.real])
    for name, parts in rows.items():
      values = np.concatenate(parts)
      self.assertLen(values, self.texts.num_tokens)
      np.testing.assert_allclose(stats[name].peak, np.abs(values).max(0))
      np.testing.assert_allclose(
        stats[name].hessian, values.T @ values / len(values), atol=1e-4
      )
      np.testing.assert_allclose(
        stats[name].mean_square, np.square(values).mean(0), rtol=1e-4
      )

  @parameterized.product(family=('gptj', 'gpt_neox'), strength=(0.0, 0.5))
  def test_smoothing_changes_no_bit_of_the_float_model(self, family, strength):
    small_pax.write(f'{self.pax}_{family}', family=family)
    model = self.layered(f'{self.pax}_{family}')
    calibration = calibration_run.Calibration(model, self.texts, 0)
    x = model.embed(self.texts)[0]
    for index in range(model.config.num_layers):
      prefix = f'{variables_lib.PREFIX}.transformer.x_layers_{index}.'
      variables = {
        name: model.reader.read(name)
        for name in model.reader.specs
        if name.startswith(prefix)
      }
      stats = calibration.next_layer(variables)
      exponents = smoothing.choose(variables, strength, stats)
      norms = {'gptj': ['norm'], 'gpt_neox': ['norm', 'fed']}[family]
      self.assertSameElements(exponents, ['mixed', *norms])
      for norm in norms:
        self.assertGreater(max(exponents[norm]), min(exponents[norm]))
      smoothed = smoothing.apply(variables, exponents)
      before, _ = model.run_layer(model.layer(variables, index), x, index)
      after, inputs = model.run_layer(model.layer(smoothed, index), x, index)
      np.testing.assert_array_equal(before, after)
      scaled = smoothing.apply_to_stats(stats, exponents)
      for tap, values in inputs._asdict().items():
        seen = np.abs(np.asarray(values)[self.texts.batches[0].real]).max(0)
        self.assertTrue((seen <= scaled[tap].peak).all(), tap)
      x = before


if __name__ == '__main__':
  absltest.main()
