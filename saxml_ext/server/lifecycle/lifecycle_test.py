"""Tests of the life cycle of models."""

import threading
import weakref

from absl.testing import absltest

from saxml_ext.common import errors
from saxml_ext.server.lifecycle import cancellation
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.lifecycle import lifecycle

_KEY = '/sax/test/m'
_TIMEOUT = 300
State = lifecycle.State


class _Model:
  """A model that records how it was closed, and can be slow to close."""

  admission_limit = 2
  weights: object = None

  def __init__(self, on_failure, may_close):
    self.on_failure = on_failure
    self.closed = []
    self._may_close = may_close

  def close(self, drain: bool) -> None:
    self._may_close.wait(_TIMEOUT)
    self.closed.append(drain)


def _spec(checkpoint='/ckpt', **acls) -> entry_lib.Spec:
  return entry_lib.Spec('some.Params', checkpoint, {}, acls)


class LifecycleTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.may_load = threading.Event()
    self.may_load.set()
    self.may_close = threading.Event()
    self.may_close.set()
    self.error = None
    self.loads = []
    self.made = []
    self.began = threading.Event()
    self.models = lifecycle.Models(self._load)
    self.addCleanup(self._end)

  def _end(self) -> None:
    self.may_load.set()
    self.may_close.set()
    self.models.close(drain=False)

  def _load(self, spec, on_failure) -> _Model:
    self.began.set()
    self.may_load.wait(_TIMEOUT)
    self.loads.append(spec.checkpoint_path)
    if self.error is not None:
      raise self.error
    self.made.append(_Model(on_failure, self.may_close))
    return self.made[-1]

  def _state(self) -> lifecycle.State | None:
    entry = self.models.entries().get(_KEY)
    return entry and entry.state

  def _loaded(self) -> _Model:
    self.models.load(_KEY, _spec()).result(_TIMEOUT)
    return self.models.serving(_KEY).model

  def test_model_is_loaded_served_and_unloaded(self):
    self.may_load.clear()
    future = self.models.load(_KEY, _spec())
    self.assertIs(self._state(), State.LOADING)
    with self.assertRaisesRegex(errors.NotFound, 'still loading'):
      self.models.serving(_KEY)
    self.may_load.set()
    future.result(_TIMEOUT)
    self.assertIs(self._state(), State.LOADED)
    model = self.models.serving(_KEY).model
    self.models.unload(_KEY).result(_TIMEOUT)
    self.assertIsNone(self._state())
    self.assertEqual(model.closed, [True])

  def test_unknown_model_error_lists_serving_models(self):
    self._loaded()
    with self.assertRaisesRegex(
      errors.NotFound, f'/sax/test/x .*Available models: {_KEY}'
    ):
      self.models.serving('/sax/test/x')

  def test_second_load_waits_for_the_first(self):
    self.may_load.clear()
    first = self.models.load(_KEY, _spec())
    second = self.models.load(_KEY, _spec('/other'))
    self.assertFalse(second.done())
    self.may_load.set()
    second.result(_TIMEOUT)
    self.assertTrue(first.done())
    self.assertEqual(self.loads, ['/ckpt'])

  def test_progress_of_a_load_is_its_reason_until_it_ends(self):
    reasons = []

    def load(spec, on_failure):
      cancellation.progress('compiled 4 of 11 programs, 20 s left: decode 4')
      reasons.append(self.models.entries()[_KEY].reason)
      return self._load(spec, on_failure)

    self.models = lifecycle.Models(load)
    self._loaded()
    self.assertEqual(reasons, ['compiled 4 of 11 programs, 20 s left'])
    self.assertEqual(self.models.entries()[_KEY].reason, '')
    # A reload beside the loaded weights does not change the state.
    self.models = lifecycle.Models(load, has_room=lambda spec: True)
    self._loaded()
    self.models.reload(_KEY, '/other').result(_TIMEOUT)
    self.assertEqual(reasons[1:], [reasons[0], ''])

  def test_failed_load_keeps_its_reason(self):
    self.error = ValueError('bad weights')
    with self.assertRaisesRegex(
      errors.InvalidArgument, 'Loading error: ValueError: bad weights'
    ):
      self.models.load(_KEY, _spec()).result(_TIMEOUT)
    entry = self.models.entries()[_KEY]
    self.assertIs(entry.state, State.FAILED)
    self.assertIn('bad weights', entry.reason)
    with self.assertRaisesRegex(errors.NotFound, 'failed: .*bad weights'):
      self.models.serving(_KEY)

  def test_waiting_loads_share_the_error_of_the_first(self):
    self.error = ValueError('bad weights')
    self.may_load.clear()
    loads = [self.models.load(_KEY, _spec()) for _ in range(2)]
    self.may_load.set()
    for load in loads:
      with self.assertRaisesRegex(errors.InvalidArgument, 'bad weights'):
        load.result(_TIMEOUT)

  def test_other_errors_of_a_load_are_internal(self):
    self.error = MemoryError('too big')
    with self.assertRaisesRegex(errors.Internal, 'MemoryError: too big'):
      self.models.load(_KEY, _spec()).result(_TIMEOUT)
    self.error = errors.Unimplemented('no int8')
    with self.assertRaisesRegex(errors.Unimplemented, '^no int8$'):
      self.models.load('/sax/test/n', _spec()).result(_TIMEOUT)

  def test_failed_model_can_be_reloaded_or_unloaded(self):
    self.error = ValueError('x')
    for _ in range(2):
      self.assertIsNotNone(self.models.load(_KEY, _spec()).exception(_TIMEOUT))
    self.error = None
    self._loaded()
    self.error = ValueError('y')
    self.models.load('/sax/test/n', _spec()).exception(_TIMEOUT)
    self.models.unload('/sax/test/n').result(_TIMEOUT)
    self.assertEqual(list(self.models.entries()), [_KEY])

  def test_failing_engine_fails_its_model(self):
    model = self._loaded()
    model.on_failure('device lost')
    entry = self.models.entries()[_KEY]
    self.assertIs(entry.state, State.FAILED)
    self.assertEqual(entry.reason, 'device lost')
    self.assertIsNone(entry.model)

  def test_late_failure_of_a_replaced_model_is_ignored(self):
    old = self._loaded()
    self.models.reload(_KEY, '/new').result(_TIMEOUT)
    old.on_failure('device lost')
    self.assertIs(self._state(), State.LOADED)

  def test_immediate_engine_failure_fails_the_model(self):
    def load(spec, on_failure):
      on_failure('stillborn')
      return _Model(on_failure, self.may_close)

    models = lifecycle.Models(load)
    self.addCleanup(models.close, False)
    models.load(_KEY, _spec()).result(_TIMEOUT)
    self.assertIs(models.entries()[_KEY].state, State.FAILED)

  def test_unload_refuses_new_requests_while_it_drains(self):
    model = self._loaded()
    self.may_close.clear()
    future = self.models.unload(_KEY)
    self.assertIs(self._state(), State.UNLOADING)
    with self.assertRaisesRegex(errors.NotFound, 'already unloaded'):
      self.models.serving(_KEY)
    with self.assertRaisesRegex(errors.InvalidArgument, 'not loaded here'):
      self.models.unload(_KEY)
    with self.assertRaises(errors.NotFound):
      self.models.reload(_KEY, '/ckpt')
    self.may_close.set()
    future.result(_TIMEOUT)
    self.assertEqual(model.closed, [True])

  def test_load_of_an_unloaded_model_ends_early(self):
    steps = 0

    def load(spec, on_failure):
      nonlocal steps
      if spec.checkpoint_path == '/long':
        self.began.set()
        while True:  # Only the check ends the loop.
          steps += 1
          cancellation.check()
      return _Model(on_failure, self.may_close)

    models = lifecycle.Models(load)
    self.addCleanup(models.close, drain=False)
    loading = models.load(_KEY, _spec('/long'))
    self.assertTrue(self.began.wait(_TIMEOUT))
    unloading = models.unload(_KEY)
    other = models.load('/sax/test/n', _spec())
    with self.assertRaisesRegex(errors.NotFound, 'was unloaded while it was'):
      loading.result(_TIMEOUT)
    unloading.result(_TIMEOUT)
    other.result(_TIMEOUT)
    self.assertGreater(steps, 0)
    self.assertEqual(list(models.entries()), ['/sax/test/n'])
    cancellation.check()  # The check of another thread is not set here.

  def test_failed_load_of_an_unloaded_model_leaves_nothing(self):
    self.may_load.clear()
    self.error = ValueError('x')
    states = []
    start = self.models._start

    def start_and_look(*args):
      try:
        return start(*args)
      finally:
        states.append(self._state())

    self.models._start = start_and_look
    loading = self.models.load(_KEY, _spec())
    self.assertTrue(self.began.wait(_TIMEOUT))
    unloading = self.models.unload(_KEY)
    self.may_load.set()
    with self.assertRaises(errors.NotFound):
      loading.result(_TIMEOUT)
    unloading.result(_TIMEOUT)
    self.assertEqual(states, [State.UNLOADING])
    self.assertIsNone(self._state())

  def test_model_unloaded_during_its_load_never_serves(self):
    self.may_load.clear()
    running = self.models.load(_KEY, _spec())
    self.assertTrue(self.began.wait(_TIMEOUT))
    unloaded = self.models.unload(_KEY)
    self.assertIs(self._state(), State.UNLOADING)
    self.may_load.set()
    unloaded.result(_TIMEOUT)
    with self.assertRaisesRegex(errors.NotFound, 'while it was being loaded'):
      running.result(_TIMEOUT)
    self.assertIsNone(self._state())
    self.assertEqual([model.closed for model in self.made], [[False]])

  def test_waiting_load_is_skipped_after_an_unload(self):
    self.may_load.clear()
    other = self.models.load('/sax/test/n', _spec('/other'))
    waiting = self.models.load(_KEY, _spec())
    unloaded = self.models.unload(_KEY)
    self.may_load.set()
    unloaded.result(_TIMEOUT)
    self.assertIsInstance(waiting.exception(_TIMEOUT), errors.NotFound)
    other.result(_TIMEOUT)
    self.assertEqual(self.loads, ['/other'])

  def test_load_and_unload_require_a_key(self):
    with self.assertRaises(errors.InvalidArgument):
      self.models.unload('')
    with self.assertRaises(errors.InvalidArgument):
      self.models.unload(_KEY)
    with self.assertRaises(errors.InvalidArgument):
      self.models.load('', _spec())

  def test_reload_replaces_the_weights(self):
    old = self._loaded()
    self.models.set_acls(_KEY, {'lm.score': 'acl/a'})
    self.models.reload(_KEY, '/new').result(_TIMEOUT)
    entry = self.models.serving(_KEY)
    self.assertIsNot(entry.model, old)
    self.assertEqual(old.closed, [True])
    self.assertEqual(entry.spec.checkpoint_path, '/new')
    self.assertEqual(entry.spec.acls, {'lm.score': 'acl/a'})

  def test_reload_from_the_same_path_keeps_the_model(self):
    old = self._loaded()
    self.models.reload(_KEY, '/ckpt').result(_TIMEOUT)
    self.assertIs(self.models.serving(_KEY).model, old)
    self.assertEqual(self.loads, ['/ckpt'])

  def test_failed_reload_fails_the_model_with_a_reason(self):
    self._loaded()
    self.error = ValueError('bad weights')
    with self.assertRaisesRegex(errors.InvalidArgument, 'bad weights'):
      self.models.reload(_KEY, '/new').result(_TIMEOUT)
    self.assertIs(self._state(), State.FAILED)
    self.error = None
    self.models.reload(_KEY, '/new').result(_TIMEOUT)
    self.assertIs(self._state(), State.LOADED)

  def test_changing_an_absent_model_is_not_found(self):
    with self.assertRaises(errors.NotFound):
      self.models.reload(_KEY, '/new')
    with self.assertRaises(errors.NotFound):
      self.models.set_acls(_KEY, {})

  def test_excess_commands_are_refused(self):
    self.may_load.clear()
    started = [self.models.load(f'/sax/test/m{i}', _spec()) for i in range(4)]
    with self.assertRaisesRegex(errors.ResourceExhausted, '4 models'):
      self.models.load(_KEY, _spec())
    self.assertIsNone(self._state())
    self.may_load.set()
    for future in started:
      future.result(_TIMEOUT)
    self._loaded()


class _Weights:
  """A substitute for the weights, which fill the memory."""


class MemoryTest(absltest.TestCase):
  """Tests that a server with memory for one model releases the old one."""

  def setUp(self):
    super().setUp()
    self.made: list[weakref.ref] = []
    self.alive_at_load: list[int] = []
    self.fails = False
    self.models = lifecycle.Models(self._load)
    self.addCleanup(self.models.close, drain=False)

  def _alive(self) -> int:
    return sum(ref() is not None for ref in self.made)

  def _load(self, spec, on_failure) -> _Model:
    self.alive_at_load.append(self._alive())
    weights = _Weights()
    self.made.append(weakref.ref(weights))
    if self.fails:
      try:
        self._check(weights)
      except ValueError as e:
        raise errors.InvalidArgument('not usable') from e
    may_close = threading.Event()
    may_close.set()
    model = _Model(on_failure, may_close)
    model.weights = weights
    return model

  def _check(self, weights) -> None:
    raise ValueError(f'{weights} have the wrong shape')

  def test_failed_load_keeps_only_its_reason(self):
    self.fails = True
    future = self.models.load(_KEY, _spec())
    # `assertRaises` is not used, because it clears the frames of the error.
    error = future.exception(_TIMEOUT)
    self.assertIsInstance(error, errors.InvalidArgument)
    self.assertIsNotNone(error.__traceback__)
    self.assertEqual(self._alive(), 0)
    self.assertEqual(self.models.entries()[_KEY].reason, 'not usable')

  def test_old_model_is_freed_before_the_new_one_is_read(self):
    self.models.load(_KEY, _spec('/1')).result(_TIMEOUT)
    self.models.reload(_KEY, '/2').result(_TIMEOUT)
    self.assertEqual(self.alive_at_load, [0, 0])
    self.assertEqual(self._alive(), 1)

  def test_unloaded_model_is_freed(self):
    self.models.load(_KEY, _spec()).result(_TIMEOUT)
    self.models.unload(_KEY).result(_TIMEOUT)
    self.assertEqual(self._alive(), 0)


if __name__ == '__main__':
  absltest.main()
