"""Tests of modelet_service: the code of each RPC in each state of a model.

Upstream's codes are those of google/saxml's model_service_base.py. If a code
differs on purpose, a comment gives upstream's code.
"""

import threading

from absl.testing import absltest
from absl.testing import parameterized
import grpc

from saxml_ext.params import gptj
from saxml_ext.protobuf import common_pb2
from saxml_ext.protobuf import modelet_pb2
from saxml_ext.server.testing import fake_runner
from saxml_ext.server.testing import server_fixture

_KEY = '/sax/test/m'
_TIMEOUT = 300
_OK = grpc.StatusCode.OK
_INTERNAL = grpc.StatusCode.INTERNAL
_INVALID = grpc.StatusCode.INVALID_ARGUMENT
_NOT_FOUND = grpc.StatusCode.NOT_FOUND
_UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
_UNIMPLEMENTED = grpc.StatusCode.UNIMPLEMENTED

# The state of the model when the RPC arrives.
_ABSENT, _LOADING, _LOADED, _FAILED, _UNLOADING = range(5)


def _load(path: str = '/ckpt', key: str = _KEY):
  return 'Load', modelet_pb2.LoadRequest(
    model_key=key, model_path='a.B', checkpoint_path=path
  )


def _update(path: str = '', key: str = _KEY, acls: bool = False):
  request = modelet_pb2.UpdateLoadedRequest(model_key=key, checkpoint_path=path)
  if acls:
    request.acls.items['lm.score'] = 'acl/a'
  return 'UpdateLoaded', request


def _unload(key: str = _KEY):
  return 'Unload', modelet_pb2.UnloadRequest(model_key=key)


_SAVE = 'Save', modelet_pb2.SaveRequest(model_key=_KEY)
_EXPORT = 'Export', modelet_pb2.ExportRequest(model_key=_KEY)
_WAKE_UP = 'WakeUp', modelet_pb2.WakeUpRequest()
_STATUS = 'GetStatus', modelet_pb2.GetStatusRequest()

# State, RPC, expected code, and True if the model is loaded at the end.
_TABLE = (
  (_ABSENT, _load(), _OK, True),
  (_ABSENT, _load('/bad'), _INVALID, False),
  (_ABSENT, _load('/broken'), _INTERNAL, False),
  # Upstream fails with INTERNAL, by an assertion.
  (_ABSENT, _load(key=''), _INVALID, False),
  (_ABSENT, _unload(), _INVALID, False),
  (_ABSENT, _unload(''), _INVALID, False),
  (_ABSENT, _update('/new'), _NOT_FOUND, False),
  (_ABSENT, _update(), _OK, False),
  # Upstream ignores the ACLs and returns OK.
  (_ABSENT, _update(acls=True), _NOT_FOUND, False),
  (_ABSENT, _update(key=''), _INVALID, False),
  # Upstream returns NOT_FOUND, as for any unknown key.
  (_ABSENT, _update('/new', ''), _INVALID, False),
  (_ABSENT, _SAVE, _OK, False),
  (_ABSENT, _EXPORT, _UNIMPLEMENTED, False),
  (_LOADING, _load('/other'), _OK, True),
  (_LOADING, _unload(), _OK, False),
  # Upstream returns NOT_FOUND until the model is loaded.
  (_LOADING, _update('/new'), _OK, True),
  (_LOADING, _update(acls=True), _OK, True),
  (_LOADED, _load('/bad'), _OK, True),
  (_LOADED, _unload(), _OK, False),
  (_LOADED, _update('/ckpt'), _OK, True),
  (_LOADED, _update('/new'), _OK, True),
  # Upstream returns OK, although the model has failed.
  (_LOADED, _update('/bad'), _INVALID, False),
  (_LOADED, _update(acls=True), _OK, True),
  # Upstream's models cannot be saved either, and the call returns INTERNAL.
  (_LOADED, _SAVE, _UNIMPLEMENTED, True),
  (_LOADED, _EXPORT, _UNIMPLEMENTED, True),
  # Upstream keeps a failed model unchanged and returns OK.
  (_FAILED, _load(), _OK, True),
  (_FAILED, _load('/bad'), _INVALID, False),
  (_FAILED, _unload(), _OK, False),
  # Upstream returns NOT_FOUND.
  (_FAILED, _update('/new'), _OK, True),
  (_FAILED, _update(acls=True), _OK, False),
  (_UNLOADING, _load(), _OK, True),
  (_UNLOADING, _unload(), _INVALID, False),
  (_UNLOADING, _update('/new'), _NOT_FOUND, False),
  *(
    (state, rpc, _OK, state in (_LOADING, _LOADED))
    for state in (_ABSENT, _LOADING, _LOADED, _FAILED, _UNLOADING)
    for rpc in (_WAKE_UP, _STATUS)
  ),
)
# The same columns, with --keep_statically_loaded_models.
_STATIC = (
  (_ABSENT, _load(), _UNAVAILABLE, False),
  (_LOADED, _load(), _OK, True),
  (_LOADED, _unload(), _UNAVAILABLE, True),
  (_LOADED, _update('/new'), _UNAVAILABLE, True),
  (_LOADED, _update('/ckpt'), _OK, True),
  (_LOADED, _update(acls=True), _OK, True),
)


class ModeletStatesTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.runner = fake_runner.FakeRunner(num_slots=1)
    self.load_gate = threading.Event()
    self.load_gate.set()
    self.began = threading.Event()
    self._load_fn = server_fixture.fake_load_fn(
      gptj.TinyTokenizedFP32, self.runner
    )

  def _load(self, spec, on_failure):
    self.began.set()
    self.load_gate.wait(_TIMEOUT)
    if spec.checkpoint_path == '/bad':
      raise ValueError('bad weights')
    if spec.checkpoint_path == '/broken':
      raise RuntimeError('broken disk')
    return self._load_fn(spec, on_failure)

  def _start(self, keep_static: bool) -> None:
    self.server = server_fixture.ServerFixture(
      self._load, keep_static=keep_static
    )
    self.addCleanup(self.server.stop)
    self.addCleanup(self.load_gate.set)
    self.addCleanup(self.runner.gate.set)

  def _enter(self, state: int) -> None:
    """Brings the model into a state, and keeps it there."""
    models = self.server.models
    if state == _ABSENT:
      return
    path = '/bad' if state == _FAILED else '/ckpt'
    if state == _LOADING:
      self.load_gate.clear()
    loading = models.load(_KEY, server_fixture.spec(path))
    if state == _LOADING:
      self.assertTrue(self.began.wait(_TIMEOUT))
      return
    loading.exception(_TIMEOUT)
    if state == _UNLOADING:
      # A call that is about to submit a request keeps the model from closing.
      models.serving(_KEY).model.leases.enter()
      models.unload(_KEY)

  def _leave(self, state: int, model) -> None:
    """Lets the model leave the state."""
    self.load_gate.set()
    if state == _UNLOADING:
      model.leases.leave()

  def _check(self, state, rpc, code, is_loaded) -> None:
    self._enter(state)
    entry = self.server.models.entries().get(_KEY)
    name, request = rpc
    call = getattr(self.server.modelet, name).future(request, timeout=_TIMEOUT)
    if name in ('WakeUp', 'GetStatus'):
      call.result()  # These RPCs do not wait.
    else:
      # The server must accept the RPC before the model leaves its state.
      self.server.modelet.GetStatus(modelet_pb2.GetStatusRequest())
    self._leave(state, entry and entry.model)
    self.assertIs(call.code(), code, call.details())
    self.assertEqual(self._settled() == common_pb2.LOADED, is_loaded)

  def _settled(self) -> common_pb2.ModelStatus | None:
    """Waits for a final state of the model and returns it."""
    while True:
      status = self.server.modelet.GetStatus(
        modelet_pb2.GetStatusRequest(), timeout=_TIMEOUT
      )
      for model in status.models:
        if model.model_status in (common_pb2.LOADED, common_pb2.FAILED):
          return model.model_status
      if not status.models:
        return None

  @parameterized.parameters(*_TABLE)
  def test_rpcs_have_the_documented_code(self, state, rpc, code, is_loaded):
    self._start(keep_static=False)
    self._check(state, rpc, code, is_loaded)

  @parameterized.parameters(*_STATIC)
  def test_static_models_have_the_documented_code(
    self, state, rpc, code, is_loaded
  ):
    self._start(keep_static=True)
    self._check(state, rpc, code, is_loaded)


if __name__ == '__main__':
  absltest.main()
