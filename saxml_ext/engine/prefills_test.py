"""Compares prompts that share a row with prompts that are prefilled alone."""

from collections.abc import Iterator
import contextlib
import dataclasses
import functools
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import jax
import numpy as np

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import executables
from saxml_ext.engine import logical
from saxml_ext.engine import prefills
from saxml_ext.engine import program_keys
from saxml_ext.engine import request as request_lib
from saxml_ext.engine import runner as runner_lib
from saxml_ext.engine import state
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.attention import decode_attention
from saxml_ext.engine.kernels.tpu import block_list
from saxml_ext.engine.testing import random_model
from saxml_ext.engine.testing import serving

_MODEL = config_lib.ModelConfig(
  num_layers=2,
  model_dim=32,
  num_heads=4,
  num_kv_heads=2,
  head_dim=16,
  hidden_dim=64,
  rotary_dim=8,
  vocab_size=64,
)
_SLOTS, _TOKENS = 6, 32


@functools.cache
def _runner(packed, stacked=False, quantization=None, kv_dtype='float32'):
  engine = config_lib.EngineConfig(
    eos_id=0,
    num_slots=_SLOTS,
    decode_widths=(_SLOTS,),
    max_prompt=40,
    prompt_buckets=(40,),
    prefill_tokens=_TOKENS if packed else 0,
    max_new_tokens=8,
    min_new_tokens=2,
    num_beams=3,
    search='any',
    max_logprobs=2,
    kv_dtype=kv_dtype,
  )
  variables = random_model.variables(_MODEL, scale=3.0)
  weights = weights_lib.from_pax(variables, _MODEL, 'float32', quantization)
  if stacked:
    weights = weights_lib.stack(weights)
  runner = runner_lib.Runner(weights, _MODEL, engine)
  runner._run.prepare(program_keys.packs(engine))
  return runner


def _requests(*lengths: int) -> list[request_lib.Request]:
  """Returns requests with beams, greedy answers and samples in turn."""
  rng = np.random.default_rng(5)
  options = (
    {'beam_search': True, 'num_beams': 3},
    {'beam_search': False, 'temperature': 0.0, 'logprobs': 2},
    {'beam_search': False, 'num_samples': 2, 'seed': 7, 'stream': True},
    {'beam_search': True, 'num_beams': 2, 'max_new_tokens': 5},
  )
  return [
    request_lib.Request(
      rng.integers(1, 64, length).astype(np.int32), **options[i % len(options)]
    )
    for i, length in enumerate(lengths)
  ]


@contextlib.contextmanager
def _prefilled() -> Iterator[list[str]]:
  """Yields a list of the names of prefill programs that are called."""
  names: list[str] = []
  original = executables.Executables.__call__

  def call(run, key, *args):
    if key.name.startswith('prefill'):
      names.append(key.name)
    return original(run, key, *args)

  with mock.patch.object(executables.Executables, '__call__', call):
    yield names


class PrefillsTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.enter_context(mock.patch.object(program_keys, '_MOST_PACKED', 3))

  @parameterized.parameters(
    (False, None, 'float32'), (True, None, 'float32'), (False, 'int8', 'int8')
  )
  def test_answers_are_those_of_prompts_alone(self, *kind):
    """Checks more prompts and tokens than a row has, and a prompt too long."""
    requests = _requests(1, 3, 4, 2, 40, 16, 15, 30, 5, 12, 9, 2, 8)
    expected = serving.serve(_runner(False, *kind), requests)
    with _prefilled() as names:
      got = serving.serve(_runner(True, *kind), requests)
    self.assertIn('prefill_and_insert', names)
    self.assertGreater(names.count('prefill_packed'), 1)
    self.assertEqual(serving.tokens(got), serving.tokens(expected))
    tolerance = 1e-4 if kind[1] is None else 1e-2
    for a, b in zip(got, expected):
      for one, other in zip(a.hypotheses, b.hypotheses, strict=True):
        self.assertAlmostEqual(one.score, other.score, delta=tolerance)
        self.assertEqual(one.alternatives is None, other.alternatives is None)

  def test_released_slot_leaves_other_prompts_of_its_row(self):
    requests = _requests(6, 7, 8, 9)
    runner = _runner(True)
    expected = serving.tokens(serving.serve(_runner(False), requests))
    with _prefilled() as names:
      runner.prefill_and_insert(dict(enumerate(requests[:3])))
      self.assertEqual(names, ['prefill_packed'])
      runner.release(1)
      runner.prefill_and_insert({1: requests[3]})
      self.assertEqual(names, ['prefill_packed', 'prefill_and_insert'])
    results = {}
    while len(results) < 3:
      results |= runner.step()
    got = serving.tokens(results[slot] for slot in (0, 1, 2))
    self.assertEqual(got, [expected[i] for i in (0, 3, 2)])

  @parameterized.parameters('float32', 'int8')
  def test_program_for_a_gpu_computes_the_same(self, kv_dtype):
    run = _runner(False, False, None, kv_dtype)._run
    engine = dataclasses.replace(run.settings.engine, prefill_tokens=_TOKENS)
    pack, *_ = prefills.pack(
      dict(enumerate(_requests(1, 17, 8))), engine, lambda key: True
    )
    settings = state.Settings(_MODEL, engine)
    program = pack.key.program(state.Shapes(settings, stacked=False))
    _, args = pack.call(engine, None)

    def prefill():
      empty = state.empty(settings, stacked=False)
      return jax.jit(lambda *args: program.function(*args))(
        run._weights, empty.segments, empty.slots, *args
      )

    segments, slots = prefill()
    with decode_attention.interpreted(block_list.Blocks(16)):
      with logical.targeting('gpu'):
        kernel_segments, kernel_slots = prefill()
    for a, b in zip(
      jax.tree.leaves(kernel_segments), jax.tree.leaves(segments)
    ):
      # A code of int8 may be rounded to its neighbor.
      np.testing.assert_allclose(a, b, atol=1 if a.dtype == np.int8 else 1e-4)
    last = kernel_slots.searches.last
    np.testing.assert_array_equal(last, slots.searches.last)
    self.assertLen(np.unique(last[:3, 0]), 3)

  def test_program_that_is_not_ready_is_not_used(self):
    runner = _runner(True)
    run = runner._run
    packed = [key for key in run.keys() if key.name == 'prefill_packed']
    self.assertEqual(packed, program_keys.packs(run.settings.engine))
    programs = {k: p for k, p in run._programs.items() if k not in packed}
    with mock.patch.object(run, '_programs', programs), _prefilled() as names:
      serving.serve(runner, _requests(2, 3))
    self.assertEqual(names, ['prefill_and_insert'] * 2)

  @parameterized.parameters(
    # The lengths, and the slots of each row.
    ((5,), []),
    ((5, 3), [[0, 1]]),
    ((5, 3, 1, 1), [[0, 1, 2]]),
    ((20, 13, 19), [[1, 2]]),
    ((20, 33, 12, 32), [[0, 2]]),
    ((1, 1, 1, 1, 1), [[0, 1, 2], [3, 4]]),
  )
  def test_rows_have_the_next_prompts_that_fit(self, lengths, rows):
    requests = dict(enumerate(_requests(*lengths)))
    engine = config_lib.EngineConfig(
      eos_id=0, max_prompt=40, prompt_segments=(40,), prefill_tokens=_TOKENS
    )
    packs = prefills.pack(requests, engine, lambda key: True)
    self.assertEqual([list(pack.requests) for pack in packs], rows)

  @parameterized.parameters(
    # A row of 2,048 tokens costs more than these alone; one of 512 does not.
    ((600, 600), []),
    ((128, 128), [512]),
    ((300, 212, 600, 600), [512]),
    ((700, 700, 600), [2048]),
  )
  def test_row_computes_no_more_tokens_than_single_prompts(
    self, lengths, sizes
  ):
    with mock.patch.object(program_keys, '_MOST_PACKED', 16):
      engine = config_lib.EngineConfig(
        eos_id=0,
        max_prompt=1024,
        prompt_segments=(1024,),
        prefill_tokens=2048,
      )
      requests = dict(enumerate(_requests(*lengths)))
      packs = prefills.pack(requests, engine, lambda key: True)
    self.assertEqual([pack.key.tokens for pack in packs], sizes)

  def test_settings_that_rows_do_not_support_are_refused(self):
    with self.assertRaisesRegex(ValueError, 'prompt_segments is .* which'):
      config_lib.EngineConfig(eos_id=0, prefill_tokens=64)
    with self.assertRaisesRegex(ValueError, 'prefill_chunk is 8, which'):
      config_lib.EngineConfig(eos_id=0, prefill_tokens=64, prefill_chunk=8)


if __name__ == '__main__':
  absltest.main()
