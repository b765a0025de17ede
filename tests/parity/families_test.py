"""Tests that all families are converted, run and quantized as in transformers.

The weights are random. transformers writes a checkpoint of each family, and the
converter reads it. Both know the family only from its config.json.
"""

from collections.abc import Sequence
import copy
import dataclasses
import functools

from absl.testing import absltest
from absl.testing import flagsaver
from absl.testing import parameterized
import jax
import jax.numpy as jnp
import numpy as np
import torch

from converters import offline_quantize
from converters.convert import conversion
from converters.convert import sources
from converters.quantize import calibration_run
from converters.quantize import models
from converters.quantize import provenance
from converters.quantize import quantization
from converters.quantize import sample_texts
from saxml_ext.engine import architecture
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import model as model_lib
from saxml_ext.engine import request as request_lib
from saxml_ext.engine import runner as runner_lib
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.testing import serving
from saxml_ext.families import all as families
from saxml_ext.families import hf_config
from saxml_ext.families import hf_rotary
from saxml_ext.families import layout
from saxml_ext.params import all_params  # noqa: F401 Registers them.
from saxml_ext.params import registry
from tests.parity import family_models

# Tests have the names of families, so that a filter selects a family.
_FAMILIES = [(name, name) for name in families.convertible()]
_NEW_TOKENS = 12
_END = 0
_GPTQ_INPUTS = 64
# One end id, and two of each answer.
_MAX_ENDS = 7


def setUpModule():
  # Threads cost more than they save on matrices of this size.
  torch.set_num_threads(1)


def _quantized_alike() -> list[tuple[str, str]]:
  """Returns one family of each kind that the quantizer treats differently."""
  kinds: dict[tuple, tuple[str, str]] = {}
  for name in families.convertible():
    family = families.FAMILIES[name]
    switches = dataclasses.replace(
      family.architecture, activation=architecture.SILU, interleaved=True
    )
    kinds.setdefault((switches, family.ln_direct_scale), (name, name))
  return list(kinds.values())


def _prompts() -> list[np.ndarray]:
  rng = np.random.default_rng(2)
  lengths = (3, 9, 16)
  return [rng.integers(1, 64, n).astype(np.int32) for n in lengths]


@functools.partial(jax.jit, static_argnums=1)
def _padded_logits(weights, config, tokens):
  x, _ = model_lib.prefill(weights, config, tokens, 'float32')
  return model_lib.logits(weights, config, x)


def _logits(config, weights, prompts: Sequence[np.ndarray]) -> list[np.ndarray]:
  """Returns the logits of prompts, which are computed in one program."""
  width = max(len(prompt) for prompt in prompts)
  tokens = np.stack([np.pad(p, (0, width - len(p))) for p in prompts])
  padded = np.asarray(_padded_logits(weights, config, tokens))
  return [rows[: len(prompt)] for rows, prompt in zip(padded, prompts)]


class FamiliesTest(parameterized.TestCase):
  def _open(
    self, pax: str, quantization: str | None = None, dtype: str = 'float32'
  ):
    model = models.open_model(pax)
    variables = {n: model.reader.read(n) for n in model.reader.specs}
    weights = weights_lib.from_pax(
      variables, model.config, dtype, quantization, quantize_head=False
    )
    return model.config, weights

  def _assert_near(self, config, weights, reference) -> list[np.ndarray]:
    """Returns the logits of the prompts, which match the reference's."""
    results = _logits(config, weights, _prompts())
    for prompt, logits in zip(_prompts(), results):
      with torch.no_grad():
        expected = reference(torch.from_numpy(prompt)[None].long()).logits[0]
      np.testing.assert_allclose(logits, expected.numpy(), rtol=0, atol=1e-4)
    return results

  def _runner(self, config, weights, **settings) -> runner_lib.Runner:
    engine = config_lib.EngineConfig(
      eos_id=_END,
      num_slots=3,
      max_prompt=16,
      max_new_tokens=_NEW_TOKENS,
      max_stop_ids=_MAX_ENDS,
      min_new_tokens=0,
      **settings,
    )
    return runner_lib.Runner(weights, config, engine)

  def _answers(self, runner: runner_lib.Runner, ends=(_END,), least: int = 0):
    requests = [
      request_lib.Request(prompt, stop_ids=ends, min_new_tokens=least)
      for prompt in _prompts()
    ]
    return serving.tokens(serving.serve(runner, requests))

  @parameterized.named_parameters(*_FAMILIES)
  def test_family_matches_transformers(self, name):
    """Checks all properties in one test, which share models and programs."""
    with self.subTest('logits'):
      self._check_logits(name)
    with self.subTest('bfloat16 rounds weights only'):
      self._check_bfloat16(name)
    with self.subTest('merged adapter'):
      self._check_adapter(name)
    for beams in (1, 4):
      with self.subTest('answers', beams=beams):
        self._check_answers(name, beams)
    with self.subTest('int8 is near the float model'):
      self._check_int8(name)

  def _check_logits(self, name: str) -> None:
    reference, pax = family_models.convert(name)
    config, weights = self._open(pax)
    self._assert_near(config, weights, reference)

  @parameterized.named_parameters(
    (
      'llama_as_many_keys_as_queries',
      'llama',
      {'num_kv_heads': 0, 'rotary_scaling': None},
    ),
    ('llama_tied', 'llama', {'tied_embeddings': True}),
    ('llama_linear', 'llama', {'rotary_scaling': hf_rotary.linear(4.0)}),
    (
      'gpt_neox_linear_partial',
      'gpt_neox',
      {'rotary_scaling': hf_rotary.linear(2.0), 'rotary_base': 500.0},
    ),
    ('qwen2_llama3', 'qwen2', {'rotary_scaling': family_models.SCALING}),
    ('qwen3_tied', 'qwen3', {'tied_embeddings': True}),
    ('phi3_as_many_keys_as_queries', 'phi3', {'num_kv_heads': 0}),
    ('gemma_tied', 'gemma', {'tied_embeddings': True}),
    ('olmo2_heads', 'olmo2', {'num_kv_heads': 0}),
  )
  def test_forms_of_families(self, name, changes):
    sizes = dataclasses.replace(
      family_models.OWN_SIZES.get(name, family_models.SIZES), **changes
    )
    reference, pax = family_models.convert(name, sizes)
    config, weights = self._open(pax)
    self._assert_near(config, weights, reference)

  def _check_bfloat16(self, name: str) -> None:
    reference, pax = family_models.convert(name, dtype='bfloat16')
    reference = copy.deepcopy(reference)
    with torch.no_grad():
      for parameter in reference.parameters():
        parameter.copy_(parameter.bfloat16())
    config, weights = self._open(pax, dtype='bfloat16')
    self.assertEqual(weights.embedding.dtype, jnp.bfloat16)
    self._assert_near(config, weights, reference)

  def _check_adapter(self, name: str) -> None:
    reference, base = family_models.saved(name)
    reference = copy.deepcopy(reference)
    lora, pax = (self.create_tempdir().full_path for _ in range(2))
    family_models.add_adapter(reference, lora)
    checkpoint = sources.open_checkpoint(base, lora)
    conversion.convert(checkpoint, pax, 'float32', compress=False)
    config, weights = self._open(pax)
    _, exact = self._open(family_models.convert(name)[1])
    results = self._assert_near(config, weights, reference)
    for before, logits in zip(_logits(config, exact, _prompts()), results):
      self.assertGreater(np.abs(logits - before).max(), 0.1)

  def _check_answers(self, name: str, beams: int) -> None:
    reference, pax = family_models.convert(name)
    config, weights = self._open(pax)
    search = 'sample' if beams == 1 else 'beam'
    settings = {'temperature': 0.0} if beams == 1 else {}
    runner = self._runner(
      config, weights, search=search, num_beams=beams, **settings
    )

    def check(ends: list[int], least: int) -> list[list[int]]:
      """Returns the answers, after comparing them with the reference's."""
      results = self._answers(runner, ends, least)
      for prompt, answers in zip(_prompts(), results):
        with torch.no_grad():
          expected = reference.generate(
            torch.from_numpy(prompt)[None].long(),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            max_new_tokens=_NEW_TOKENS,
            min_new_tokens=least,
            num_beams=beams,
            early_stopping=beams > 1,
            do_sample=False,
            eos_token_id=ends,
            pad_token_id=_END,
          )[0, len(prompt) :].tolist()
        best = answers[0]
        self.assertEqual(best, expected[: len(best)])
        self.assertTrue(all(token == _END for token in expected[len(best) :]))
        self.assertFalse(set(best[:-1]).intersection(ends))
      return [answers[0] for answers in results]

    # The likeliest answers begin with these end ids.
    first = [token for answer in check([_END], 0) for token in answer[:2]]
    ends = sorted({_END, *first})
    by_least = {least: check(ends, least) for least in (0, 4)}
    ended = {answer[-1] for answer in by_least[0] + by_least[4]}
    self.assertGreater(
      len(ended.intersection(ends)),
      1,
      f'The answers of the random {name} do not end with several of {ends}.'
      ' Change its sizes in OWN_SIZES of family_models.py until they do.',
    )
    self.assertNotEqual(by_least[0], by_least[4])

  def _check_int8(self, name: str) -> None:
    _, pax = family_models.convert(name)
    int8 = self.create_tempdir().full_path
    with flagsaver.flagsaver(
      input_dir=pax, output_dir=int8, quantization_configs=name
    ):
      offline_quantize.main(['offline_quantize'])
    config, weights = self._open(pax)
    _, quantized = self._open(int8, 'int8_weights')
    prompts = _prompts()[2:]
    (exact,) = _logits(config, weights, prompts)
    (logits,) = _logits(config, quantized, prompts)
    self.assertGreater(np.corrcoef(exact.ravel(), logits.ravel())[0, 1], 0.999)
    self.assertGreater(np.abs(exact - logits).max(), 0)

  @parameterized.named_parameters(*_quantized_alike())
  def test_calibration_brings_int8_nearer(self, name):
    # A few models of this size may get worse by chance.
    none, maxima, smoothed = np.mean(
      [self._int8_errors(name, seed) for seed in range(1, 6)], 0
    )
    print(f'{name}: errors of logits {none}, {maxima}, {smoothed}')
    self.assertLess(maxima, none)
    self.assertLess(smoothed, none)

  def _int8_errors(self, name: str, seed: int) -> list[np.floating]:
    """Returns the errors of int8 logits with three kinds of calibration.

    The kinds are: none, without smoothing, and with smoothing.
    """
    reference, pax = family_models.convert(name, seed=seed)
    rng = np.random.default_rng(7)
    texts = rng.integers(1, 64, (16, 64)).astype(np.int32)
    calibration = calibration_run.Calibration(
      models.open_model(pax),
      sample_texts.from_sequences([(text, 1) for text in texts]),
      _GPTQ_INPUTS,
    )
    stats = []

    def next_layer(variables):
      stats.append(calibration.next_layer(variables))
      return stats[-1]

    prompts = rng.integers(1, 64, (8, 40))
    with torch.no_grad():
      exact = reference(torch.from_numpy(prompts)).logits.numpy()
    errors = []
    calibrated = provenance.Options(smoothing=0.0, gptq_inputs=_GPTQ_INPUTS)
    for options, get_stats in (
      (provenance.Options(), None),
      (calibrated, next_layer),
      (
        dataclasses.replace(calibrated, smoothing=0.5),
        lambda variables: stats.pop(0),
      ),
    ):
      int8 = self.create_tempdir().full_path
      record = provenance.Record(options, len(texts), texts.size)
      quantization.quantize(pax, int8, record, get_stats, compress=False)
      config, weights = self._open(int8, 'int8')
      logits = _logits(config, weights, prompts)
      errors.append(np.square(logits - exact).mean() ** 0.5)
    return errors

  @parameterized.named_parameters(*_FAMILIES)
  def test_serving_params_name_their_family(self, name):
    serving = families.FAMILIES[name].serving
    params = registry.lookup(serving)
    self.assertEqual(params.ARCHITECTURE, name)
    # Texts begin with the start token of the tokenizer.
    self.assertIsNone(params.SOS_ID)
    self.assertFalse(params.EOS_PADDING_AND_NO_SOS)

  def test_a_family_is_a_table(self):
    """Runs a family that exists only as a table in this test."""
    neox = families.FAMILIES['gpt_neox']
    parts = {
      f'layers.{part}{leaf}': (f'layers.{{layer}}.{part}{leaf}',)
      for part in ('query', 'key', 'value')
      for leaf in ('', '_bias')
    }
    made_up = dataclasses.replace(
      neox,
      name='made_up',
      tensors={**neox.tensors, **parts},
      architecture=architecture.Architecture(
        residual=architecture.SEQUENTIAL,
        activation=architecture.GELU,
        biases=(architecture.QKV,),
        interleaved=False,
      ),
    )
    shape = hf_config.HFConfig(2, 32, 4, 64, 64, num_kv_heads=2)
    rng = np.random.default_rng(0)
    made = {}
    for variable in layout.variables(shape, family=made_up):
      tensors = [
        rng.normal(0, 0.3, variable.source_shape).astype(np.float32)
        for _ in variable.sources
      ]
      made[variable.name] = variable.build(tensors)
    names = {name.split('.', 4)[-1] for name in made}
    self.assertIn('self_attention.query.b', names)
    self.assertEqual(
      made['params.lm.transformer.x_layers_1.self_attention.key.w'].shape,
      (32, 2, 8),
    )
    self.assertNotIn('ff_layer.ffn_layer1.bias.b', names)
    config = config_lib.ModelConfig.from_pax(
      made, 4, architecture=made_up.architecture
    )
    self.assertEqual(config.group, 2)
    weights = weights_lib.from_pax(made, config)
    runner = self._runner(
      config, weights, search='sample', num_beams=1, temperature=0.0
    )
    answers = [answer for (answer,) in self._answers(runner)]
    texts = [
      np.concatenate([prompt, answer[:-1]]).astype(np.int32)
      for prompt, answer in zip(_prompts(), answers)
    ]
    results = _logits(config, weights, texts)
    for prompt, answer, logits in zip(_prompts(), answers, results):
      self.assertEqual(logits[len(prompt) - 1 :].argmax(-1).tolist(), answer)


if __name__ == '__main__':
  absltest.main()
