"""Tests of the order and the threads in which programs are prepared."""

import gc
import threading
from unittest import mock
import weakref

from absl.testing import absltest
import jax
import jax.numpy as jnp

from saxml_ext.engine import abstract_weights
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import executables
from saxml_ext.engine import jobs
from saxml_ext.engine import program_keys
from saxml_ext.engine import state

_MODEL = config_lib.ModelConfig(
  num_layers=1,
  model_dim=8,
  num_heads=1,
  head_dim=8,
  hidden_dim=16,
  rotary_dim=4,
  vocab_size=32,
)
_ENGINE = config_lib.EngineConfig(
  num_slots=16,
  eos_id=0,
  max_prompt=8,
  prompt_buckets=(4, 8),
  min_new_tokens=1,
  max_new_tokens=4,
  num_beams=2,
)
_TIMEOUT = 60.0
_SMALL, _LARGE = program_keys.Decode(1), program_keys.Decode(16)
_PROMPT = program_keys.PrefillAndInsert(1, 0, 4)


class _Compiler:
  """A fake compiler, whose programs return their keys.

  Attributes:
    gates: The events for which the compilation of a key waits, by key.
    keys: The keys in the order of their compilations.
    errors: The errors of the next compilations, by key.
    begun: The events that are set when the compilation of a key begins.
  """

  def __init__(self):
    self.gates: dict[executables.Key, threading.Event] = {}
    self.keys: list[executables.Key] = []
    self.errors: dict[executables.Key, list[Exception]] = {}
    self.begun = {key: threading.Event() for key in (_SMALL, _LARGE, _PROMPT)}

  def __call__(self, run: executables.Executables, key: executables.Key):
    del run
    self.keys.append(key)
    if key in self.begun:
      self.begun[key].set()
    if key in self.gates:
      assert self.gates[key].wait(_TIMEOUT)
    if self.errors.get(key):
      raise self.errors[key].pop()
    return lambda *args: key


class ExecutablesTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.compiler = _Compiler()
    self.run_ = self._executables('float32')
    self.lines: list[str] = []
    self.done = threading.Event()
    self.addCleanup(self.run_.stop)

  def _executables(self, dtype: str) -> executables.Executables:
    return executables.Executables(
      state.Settings(_MODEL, _ENGINE),
      abstract_weights.shapes(_MODEL, dtype, None),
      build=self.compiler,
    )

  def _finish(self, run: executables.Executables) -> None:
    self.assertEqual(run.counts, self.run_.counts)
    self.done.set()

  def _hold(self, key: executables.Key) -> threading.Event:
    """Returns an event that ends the compilation of a program."""
    gate = self.compiler.gates[key] = threading.Event()
    self.addCleanup(gate.set)
    return gate

  def test_first_programs_are_the_smallest_of_every_kind(self):
    self.run_.prepare(self.run_.first(), self.lines.append)
    first = frozenset(self.compiler.keys)
    self.assertEqual(
      first,
      {
        program_keys.EmptyState(),
        program_keys.PrefillAndInsert(1, 0, 4),
        _SMALL,
        program_keys.Hypotheses(),
        *(k for k in self.run_.keys() if isinstance(k, program_keys.Progress)),
      },
    )
    self.assertLess(first, frozenset(self.run_.keys()))
    self.assertTrue(self.run_.is_ready(_SMALL))
    self.assertFalse(self.run_.is_ready(_LARGE))
    self.assertEqual(self.run_.counts, (len(first), len(self.run_.keys())))

  def test_other_programs_are_compiled_once_behind_the_first(self):
    self.run_.prepare(self.run_.first())
    self.run_.prepare_rest(self.lines.append, self._finish)
    self.assertTrue(self.done.wait(_TIMEOUT))
    self.assertCountEqual(self.compiler.keys, self.run_.keys())
    total = len(self.run_.keys())
    self.assertEqual(self.run_.counts, (total, total))
    self.assertRegex(self.lines[-2], f'^compiled {total} of {total} programs:')
    self.assertStartsWith(
      self.lines[-1], f'{total} programs are ready: 0 loade'
    )

  def test_programs_that_more_requests_need_come_first(self):
    self.enterContext(mock.patch.object(jobs, 'cores', lambda: 1))
    self.run_.prepare_rest(self.lines.append, self._finish)
    self.assertTrue(self.done.wait(_TIMEOUT))
    self.assertEqual(
      self.compiler.keys[:5],
      [_PROMPT, program_keys.PrefillAndInsert(1, 0, 8)]
      + [program_keys.Decode(width) for width in (16, 4, 1)],
    )

  def test_programs_are_compiled_while_weights_are_read(self):
    gate = self._hold(_SMALL)
    with self.run_.preparing(self.run_.first()):
      self.assertTrue(self.compiler.begun[_SMALL].wait(_TIMEOUT))
      run = self._executables('float32')
      run.share(self.run_)
      gate.set()
      run.prepare(run.first(), self.lines.append)
    self.assertCountEqual(self.compiler.keys, run.first())
    self.assertEndsWith(self.lines[-1].split(' (')[0], 'compiled')

  def test_programs_of_other_shapes_are_not_shared(self):
    self.run_.prepare([_SMALL])
    other = self._executables('bfloat16')
    other.share(self.run_)
    self.assertFalse(other.is_ready(_SMALL))

  def test_failed_load_begins_no_further_program(self):
    self.enterContext(mock.patch.object(jobs, 'cores', lambda: 1))
    gate = self._hold(_SMALL)
    with self.assertRaisesRegex(ValueError, 'damaged'):
      with self.run_.preparing([_SMALL, _LARGE]):
        self.assertTrue(self.compiler.begun[_SMALL].wait(_TIMEOUT))
        raise ValueError('damaged')
    gate.set()
    self.run_(_SMALL)
    self.assertEqual(self.compiler.keys, [_SMALL])

  def test_call_waits_only_for_its_own_program(self):
    gate = self._hold(_LARGE)
    self.run_.prepare(self.run_.first())
    self.run_.prepare_rest(self.lines.append, self._finish)
    self.assertTrue(self.compiler.begun[_LARGE].wait(_TIMEOUT))
    self.assertEqual(self.run_(_SMALL), _SMALL)  # It does not wait.
    answers = []
    caller = threading.Thread(target=lambda: answers.append(self.run_(_LARGE)))
    caller.start()
    self.assertEqual(answers, [])
    gate.set()
    caller.join(_TIMEOUT)
    self.assertEqual(answers, [_LARGE])
    self.assertEqual(self.compiler.keys.count(_LARGE), 1)

  def test_call_compiles_a_program_before_its_turn(self):
    gates = [self._hold(k) for k in self.run_.keys() if k != _LARGE]
    # The threads of the first programs hold all others back.
    self.run_.prepare_rest(self.lines.append, self._finish)
    self.assertEqual(self.run_(_LARGE), _LARGE)
    for gate in gates:
      gate.set()
    self.assertTrue(self.done.wait(_TIMEOUT))
    self.assertEqual(self.compiler.keys.count(_LARGE), 1)

  def test_error_of_a_needed_program_reaches_its_caller(self):
    self.compiler.errors[_LARGE] = [ValueError('twice'), ValueError('once')]
    self.run_.prepare_rest(self.lines.append, self._finish)
    self.assertTrue(self.done.wait(_TIMEOUT))
    self.assertIn('decode 16 cannot be prepared: ValueError: once', self.lines)
    self.assertFalse(self.run_.is_ready(_LARGE))
    with self.assertRaisesRegex(ValueError, 'twice'):
      self.run_(_LARGE)
    self.assertEqual(self.run_(_LARGE), _LARGE)

  def test_error_of_a_first_program_ends_the_preparation(self):
    self.compiler.errors[_SMALL] = [ValueError('once')]
    with self.assertRaisesRegex(ValueError, 'once'):
      self.run_.prepare(self.run_.first(), self.lines.append)

  def test_progress_names_the_remaining_time(self):
    self.run_.prepare_all(self.lines.append)
    total = len(self.run_.keys())
    self.assertLen(self.lines, total + 1)
    self.assertRegex(
      self.lines[0],
      rf'^compiled 1 of {total} programs, \d+ s left: .* \(.* s\)',
    )

  def test_stop_prepares_no_further_program(self):
    self.enterContext(mock.patch.object(jobs, 'cores', lambda: 2))
    gates = [self._hold(key) for key in self.run_.keys()]
    self.run_.prepare_rest(self.lines.append, self._finish)
    self.assertTrue(self.compiler.begun[_PROMPT].wait(_TIMEOUT))
    self.run_.stop()
    for gate in gates:
      gate.set()
    for thread in threading.enumerate():
      if thread.name == 'programs':
        thread.join(_TIMEOUT)
    self.assertFalse(self.done.is_set())
    self.assertNotIn(program_keys.EmptyState(), self.compiler.keys)

  def test_background_threads_release_the_weights(self):
    gate = self._hold(_SMALL)
    shapes = abstract_weights.shapes(_MODEL, 'float32', None)
    weights = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    settings = state.Settings(_MODEL, _ENGINE)
    run = executables.Executables(settings, weights, build=self.compiler)
    run.prepare_rest(self.lines.append, self._finish)
    self.assertTrue(self.compiler.begun[_SMALL].wait(_TIMEOUT))
    head = weakref.ref(weights.head)
    run.stop()
    del run, weights
    gc.collect()
    self.assertIsNone(head())
    gate.set()


if __name__ == '__main__':
  absltest.main()
