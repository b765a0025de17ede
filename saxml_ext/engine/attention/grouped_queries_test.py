"""Compares queries that share keys with a model that repeats its keys."""

import contextlib
import dataclasses
import functools

from absl.testing import absltest
from absl.testing import parameterized
import jax
import numpy as np

from saxml_ext.engine import architecture
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import request as request_lib
from saxml_ext.engine import runner as runner_lib
from saxml_ext.engine import sharding
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.attention import decode_attention
from saxml_ext.engine.kernels.tpu import block_list
from saxml_ext.engine.parallel import ranges
from saxml_ext.engine.parallel import split_weights
from saxml_ext.engine.testing import random_model
from saxml_ext.engine.testing import serving

jax.config.update('jax_num_cpu_devices', 4)

_PLAIN = config_lib.ModelConfig(
  num_layers=2,
  model_dim=48,
  num_heads=6,
  head_dim=8,
  hidden_dim=64,
  rotary_dim=8,
  vocab_size=61,
)
_GROUPED = dataclasses.replace(
  _PLAIN,
  num_kv_heads=2,
  architecture=architecture.Architecture(biases=architecture.BIASES),
)
_ENGINE = config_lib.EngineConfig(
  eos_id=0,
  num_slots=4,
  decode_widths=(4,),
  max_prompt=24,
  prompt_buckets=(24,),
  prefill_chunk=12,
  max_new_tokens=12,
  min_new_tokens=3,
  suffix_block=6,
)


@functools.cache
def _variables() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
  """Returns a model with shared keys, and the same one with repeated keys."""
  grouped = random_model.variables(_GROUPED, scale=20.0)
  repeated = {}
  for name, value in grouped.items():
    head, part, end = name.rpartition('self_attention.')
    kind, *leaf = end.split('.')
    if kind in ('key', 'value') and part:
      value = np.repeat(value, _GROUPED.group, -2)
    if kind not in ('query', 'key', 'value') or not part:
      repeated[name] = value
      continue
    joined = repeated.setdefault(f'{head}{part}combined_qkv.{leaf[0]}', [])
    joined.append(value)
  arrays = {n: np.stack(v) for n, v in repeated.items() if isinstance(v, list)}
  return grouped, {**repeated, **arrays}


def _requests(count: int) -> list[request_lib.Request]:
  """Returns requests whose prompts have two chunks."""
  rng = np.random.default_rng(7)
  return [
    request_lib.Request(rng.integers(1, 61, rng.integers(13, 25)).astype('i4'))
    for _ in range(count)
  ]


def _answers(variables, config, quantization, engine, mesh, stacked, count=7):
  weights = weights_lib.from_pax(variables, config, quantization=quantization)
  if stacked:
    weights = weights_lib.stack(weights)
  if mesh is not None:
    mesh = sharding.make_mesh(mesh)
  runner = runner_lib.Runner(weights, config, engine, mesh)
  return serving.tokens(serving.serve(runner, _requests(count)))


@functools.cache
def _answers_of_repeated_keys(quantization, engine):
  """Returns the answers of the model that repeats its keys, on one device."""
  config = dataclasses.replace(
    _PLAIN, architecture=architecture.Architecture(biases=architecture.BIASES)
  )
  _, repeated = _variables()
  return _answers(repeated, config, quantization, engine, None, True)


class GroupedQueriesTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.grouped, _ = _variables()

  @parameterized.parameters(
    (None, False, 4),
    (None, True, 1),
    # Two heads of keys are padded to four.
    ((1, 1, 4), True, 4),
  )
  def test_answers_are_those_of_repeated_keys(self, mesh, stacked, beams):
    search = 'sample' if beams == 1 else 'beam'
    engine = dataclasses.replace(
      _ENGINE, search=search, num_beams=beams, temperature=0.0
    )
    actual = _answers(self.grouped, _GROUPED, None, engine, mesh, stacked)
    self.assertEqual(actual, _answers_of_repeated_keys(None, engine))

  @parameterized.parameters((None, False), ('int8', True))
  def test_wide_meshes_repeat_keys(self, quantization, stacked):
    """Checks answers and parts of two heads of keys on four devices."""
    config = dataclasses.replace(_GROUPED, num_heads=8)
    variables = random_model.variables(config, scale=20.0)
    mesh = sharding.make_mesh((1, 1, 4))
    padded = sharding.padded(mesh, config)
    self.assertEqual((padded.num_heads, padded.kv_heads), (8, 4))
    form = split_weights.Form(quantization=quantization, stacked=stacked)
    source = random_model.Arrays(variables)
    actual = split_weights.from_pax(source, config, form, mesh)
    whole = weights_lib.from_pax(variables, config, quantization=quantization)
    whole = weights_lib.stack(whole) if stacked else whole
    expected = sharding.shard(mesh, sharding.pad(mesh, whole))
    jax.tree.map(np.testing.assert_array_equal, actual, expected)
    engine = _ENGINE
    if quantization:
      engine = dataclasses.replace(engine, kv_dtype='int8')
    args = variables, config, quantization, engine
    alone = _answers(*args, None, True)
    self.assertGreater(len({str(tokens) for tokens in alone}), 4)
    self.assertEqual(_answers(*args, (1, 1, 4), stacked), alone)

  def test_a_part_of_repeated_keys_is_read_once(self):
    part = ranges.Range(3, 6, 4, repeats=2)
    self.assertEqual(part.stored, slice(1, 3))
    stored = np.array([[10, 20]])
    self.assertEqual(part.repeated(stored, 1).tolist(), [[10, 20, 20]])
    self.assertFalse(part.whole)

  @parameterized.parameters('int8', 'int8_weights')
  def test_int8_rounds_alike(self, quantization):
    engine = dataclasses.replace(_ENGINE, kv_dtype='int8')
    actual = _answers(self.grouped, _GROUPED, quantization, engine, None, True)
    self.assertEqual(actual, _answers_of_repeated_keys(quantization, engine))

  def test_kernel_of_tpu_reads_shared_keys(self):
    # Interpreted steps are slow: there are few, and one slot is used again.
    engine = dataclasses.replace(
      _ENGINE, prompt_segments=(24,), suffix_block=12, max_new_tokens=8
    )
    args = self.grouped, _GROUPED, None, engine, None, True, 5
    actual = []
    for blocks in None, block_list.Blocks(8, 12, 4):
      with contextlib.ExitStack() as stack:
        if blocks is not None:
          stack.enter_context(decode_attention.interpreted(blocks))
        actual.append(_answers(*args))
    self.assertEqual(*actual)

  @parameterized.parameters((None, 2), ('int8', 4))
  def test_split_weights_are_parts_of_the_whole(self, quantization, devices):
    mesh = sharding.make_mesh((1, 1, devices))
    form = split_weights.Form(quantization=quantization)
    source = random_model.Arrays(self.grouped)
    actual = split_weights.from_pax(source, _GROUPED, form, mesh)
    weights = weights_lib.from_pax(
      self.grouped, _GROUPED, quantization=quantization
    )
    expected = sharding.shard(mesh, sharding.pad(mesh, weights))
    jax.tree.map(np.testing.assert_array_equal, actual, expected)

  def test_sizes_are_read_off_the_variables(self):
    actual = config_lib.ModelConfig.from_pax(
      self.grouped, 8, architecture=_GROUPED.architecture
    )
    self.assertEqual(actual, _GROUPED)

  def test_wrong_numbers_of_heads_are_refused(self):
    with self.assertRaisesRegex(ValueError, 'num_kv_heads is 4.*divide.*6'):
      dataclasses.replace(_GROUPED, num_kv_heads=4)


if __name__ == '__main__':
  absltest.main()
