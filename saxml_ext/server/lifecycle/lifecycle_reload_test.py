"""Tests of models that are replaced or loaded again while they are used."""

from concurrent import futures
import threading

from absl.testing import absltest

from saxml_ext.common import errors
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.lifecycle import lifecycle

_KEY = '/sax/test/m'
_TIMEOUT = 300
State = lifecycle.State


class _Model:
  """A model with the name of its checkpoint, which can be slow to close."""

  admission_limit = 2

  def __init__(self, checkpoint: str, on_failure, may_close):
    self.checkpoint = checkpoint
    self.on_failure = on_failure
    self.closed: list[bool] = []
    self._may_close = may_close

  def close(self, drain: bool) -> None:
    self._may_close.wait(_TIMEOUT)
    self.closed.append(drain)


class LifecycleReloadTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.room: bool | Exception = True
    self.may_load = threading.Event()
    self.may_load.set()
    self.may_close = threading.Event()
    self.may_close.set()
    self.made: list[_Model] = []
    self.models = lifecycle.Models(self._load, self._has_room)
    self.addCleanup(self._end)

  def _end(self) -> None:
    self.may_load.set()
    self.may_close.set()
    self.models.close(drain=False)

  def _has_room(self, spec: entry_lib.Spec) -> bool:
    if isinstance(self.room, Exception):
      raise self.room
    return self.room

  def _load(self, spec: entry_lib.Spec, on_failure) -> _Model:
    if self.made:
      self.may_load.wait(_TIMEOUT)
    if spec.checkpoint_path == '/bad':
      raise ValueError('bad weights')
    self.made.append(_Model(spec.checkpoint_path, on_failure, self.may_close))
    return self.made[-1]

  def _loaded(self, room: bool | Exception) -> _Model:
    self.room = room
    self.models.load(_KEY, _spec('/old')).result(_TIMEOUT)
    return self.models.serving(_KEY).model

  def _serving(self) -> str:
    return self.models.serving(_KEY).model.checkpoint

  def _entry(self) -> lifecycle.Entry:
    return self.models.entries()[_KEY]

  def _wait_for(self, state: lifecycle.State) -> None:
    for _ in range(100 * _TIMEOUT):
      if self._entry().state is state:
        return
      threading.Event().wait(0.01)
    self.fail(f'not {state}')

  def test_old_model_serves_until_the_new_one_does_if_both_fit(self):
    old = self._loaded(room=True)
    self.may_load.clear()
    reloading = self.models.reload(_KEY, '/new')
    self.assertEqual(self._serving(), '/old')
    self.may_close.clear()
    self.may_load.set()
    while self._serving() != '/new':
      self.assertIs(self._entry().state, State.LOADED)
    # The old model still answers its pending requests.
    self.assertEmpty(old.closed)
    self.assertFalse(reloading.done())
    self.may_close.set()
    reloading.result(_TIMEOUT)
    self.assertEqual(old.closed, [True])

  def test_bad_checkpoint_keeps_the_old_model_if_both_fit(self):
    old = self._loaded(room=True)
    with self.assertRaisesRegex(errors.InvalidArgument, 'bad weights'):
      self.models.reload(_KEY, '/bad').result(_TIMEOUT)
    self.assertIs(self.models.serving(_KEY).model, old)
    self.assertIs(self._entry().state, State.LOADED)
    self.assertRegex(self._entry().reason, 'still serves /old.*/bad.*weights')
    self.models.reload(_KEY, '/new').result(_TIMEOUT)
    self.assertEqual(self._serving(), '/new')
    self.assertEqual(self._entry().reason, '')

  def test_reload_of_the_serving_checkpoint_is_skipped(self):
    self._loaded(room=True)
    self.models.reload(_KEY, '/bad').exception(_TIMEOUT)
    self.models.reload(_KEY, '/old').result(_TIMEOUT)
    self.assertEqual(self._entry().reason, '')
    self.assertLen(self.made, 1)

  def test_predictable_failure_keeps_the_old_model(self):
    for error in (errors.InvalidArgument('no such dir'), OSError('no disk')):
      self.made.clear()
      old = self._loaded(room=error)
      future = self.models.reload(_KEY, '/new')
      self.assertIsInstance(future.exception(_TIMEOUT), errors.SaxError)
      self.assertIs(self.models.serving(_KEY).model, old)
      self.assertEmpty(old.closed)

  def test_acls_set_during_a_reload_are_kept(self):
    self._loaded(room=True)
    self.may_load.clear()
    reloading = self.models.reload(_KEY, '/new')
    self.models.set_acls(_KEY, {'lm.score': 'acl/a'})
    self.may_load.set()
    reloading.result(_TIMEOUT)
    self.assertEqual(self._entry().spec.acls, {'lm.score': 'acl/a'})

  def test_last_of_several_reloads_applies(self):
    self._loaded(room=True)
    self.may_load.clear()
    reloads = [self.models.reload(_KEY, path) for path in ('/a', '/b', '/old')]
    self.may_load.set()
    futures.wait(reloads, _TIMEOUT)
    self.assertEqual(self._serving(), '/old')
    self.assertLen(self.made, 4)

  def test_failed_engine_is_not_kept(self):
    old = self._loaded(room=True)
    old.on_failure('device lost')
    with self.assertRaises(errors.InvalidArgument):
      self.models.reload(_KEY, '/bad').result(_TIMEOUT)
    self.assertIs(self._entry().state, State.FAILED)

  def test_requests_are_held_if_both_models_do_not_fit(self):
    old = self._loaded(room=False)
    self.assertTrue(self.models.held(_KEY).done())
    self.may_load.clear()
    reloading = self.models.reload(_KEY, '/new')
    self._wait_for(State.LOADING)
    with self.assertRaises(errors.NotFound):
      self.models.serving(_KEY)
    held = [self.models.held(_KEY) for _ in range(old.admission_limit)]
    with self.assertRaisesRegex(errors.ResourceExhausted, 'reloaded'):
      self.models.held(_KEY)
    self.assertFalse(held[0].done())
    self.may_load.set()
    for future in held:
      future.result(_TIMEOUT)
    self.assertEqual(self._serving(), '/new')
    reloading.result(_TIMEOUT)
    self.assertEqual(old.closed, [True])

  def test_held_requests_fail_with_the_reload(self):
    self._loaded(room=False)
    self.may_load.clear()
    reloading = self.models.reload(_KEY, '/bad')
    self._wait_for(State.LOADING)
    held = self.models.held(_KEY)
    self.may_load.set()
    held.result(_TIMEOUT)
    self.assertIsInstance(reloading.exception(_TIMEOUT), errors.SaxError)
    with self.assertRaisesRegex(errors.NotFound, 'bad weights'):
      self.models.serving(_KEY)
    self.assertIsNone(self.models.held(_KEY))

  def test_unload_releases_held_requests(self):
    self._loaded(room=False)
    self.may_load.clear()
    self.models.reload(_KEY, '/new')
    self._wait_for(State.LOADING)
    held = self.models.held(_KEY)
    unloading = self.models.unload(_KEY)
    held.result(_TIMEOUT)
    with self.assertRaises(errors.NotFound):
      self.models.serving(_KEY)
    self.may_load.set()
    unloading.result(_TIMEOUT)
    self.assertEmpty(self.models.entries())

  def test_load_during_an_unload_follows_it(self):
    old = self._loaded(room=True)
    self.may_close.clear()
    unloading = self.models.unload(_KEY)
    loading = self.models.load(_KEY, _spec('/new'))
    again = self.models.load(_KEY, _spec('/other'))
    self.may_close.set()
    unloading.result(_TIMEOUT)
    loading.result(_TIMEOUT)
    again.result(_TIMEOUT)
    self.assertEqual(old.closed, [True])
    self.assertEqual(self._serving(), '/new')

  def test_unload_cancels_a_load_that_waits_for_another_unload(self):
    self._loaded(room=True)
    self.may_close.clear()
    unloading = self.models.unload(_KEY)
    loading = self.models.load(_KEY, _spec('/new'))
    taken_back = self.models.unload(_KEY)
    self.may_close.set()
    unloading.result(_TIMEOUT)
    taken_back.result(_TIMEOUT)
    self.assertIsInstance(loading.exception(_TIMEOUT), errors.NotFound)
    self.assertEmpty(self.models.entries())


def _spec(checkpoint: str) -> entry_lib.Spec:
  return entry_lib.Spec('some.Params', checkpoint, {}, {})


if __name__ == '__main__':
  absltest.main()
