"""Tests of modelet_service over gRPC, with a fake engine."""

import gc
import threading
import time

from absl.testing import absltest
import grpc
from grpc_health.v1 import health_pb2
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha import reflection_pb2_grpc

from saxml_ext.params import gptj
from saxml_ext.protobuf import common_pb2
from saxml_ext.protobuf import lm_pb2
from saxml_ext.protobuf import modelet_pb2
from saxml_ext.server.testing import fake_runner
from saxml_ext.server.testing import server_fixture

_KEY = '/sax/test/m'
_TIMEOUT = 300
_Code = grpc.StatusCode


class ModeletServiceTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.runner = fake_runner.FakeRunner(num_slots=1)
    self.loads = []
    self.load_gate = threading.Event()
    self.load_gate.set()
    load_fn = server_fixture.fake_load_fn(gptj.TinyTokenizedFP32, self.runner)

    def load(spec, on_failure):
      self.loads.append(spec)
      self.load_gate.wait()
      if spec.checkpoint_path == '/bad':
        raise ValueError('bad weights')
      return load_fn(spec, on_failure)

    self.server = server_fixture.ServerFixture(load)
    self.addCleanup(self.server.stop)
    self.addCleanup(self.runner.gate.set)
    self.addCleanup(self.load_gate.set)
    self.modelet = self.server.modelet

  def _status(self, reasons=False, stats=False):
    return self.modelet.GetStatus(
      modelet_pb2.GetStatusRequest(
        include_failure_reasons=reasons, include_method_stats=stats
      ),
      timeout=_TIMEOUT,
    )

  def _assert_error(self, call, code, *words) -> None:
    with self.assertRaises(grpc.RpcError) as caught:
      call()
    self.assertIs(caught.exception.code(), code, caught.exception.details())
    for word in words:
      self.assertIn(word, caught.exception.details())

  def _update(self, **fields) -> None:
    self.modelet.UpdateLoaded(
      modelet_pb2.UpdateLoadedRequest(model_key=_KEY, **fields),
      timeout=_TIMEOUT,
    )

  def test_load_passes_all_fields(self):
    self.server.load(
      _KEY,
      model_path='a.B',
      checkpoint_path='/c',
      overrides={'BATCH_SIZE': '[1,4]'},
      acls=common_pb2.AccessControlLists(items={'lm.score': ''}),
    )
    (spec,) = self.loads
    self.assertEqual(spec.model_path, 'a.B')
    self.assertEqual(spec.checkpoint_path, '/c')
    self.assertEqual(spec.overrides, {'BATCH_SIZE': '[1,4]'})
    self.assertEqual(spec.acls, {'lm.score': ''})

  def test_idle_server_reports_no_models(self):
    status = self._status(stats=True)
    self.assertEmpty(status.models)
    self.assertEqual(
      status.server_status.state,
      modelet_pb2.GetStatusResponse.ServerStatus.ACTIVE,
    )

  def test_status_reports_models(self):
    self.server.load(_KEY)
    self._assert_error(
      lambda: self.server.load('/sax/test/n', checkpoint_path='/bad'),
      _Code.INVALID_ARGUMENT,
      'bad weights',
    )
    plain = {m.model_key: m for m in self._status().models}
    self.assertEqual(plain[_KEY].model_status, common_pb2.LOADED)
    self.assertEqual(plain['/sax/test/n'].model_status, common_pb2.FAILED)
    self.assertEqual(plain['/sax/test/n'].failure_reason, '')
    self.assertEmpty(plain[_KEY].method_stats)
    full = {m.model_key: m for m in self._status(True, True).models}
    self.assertIn('bad weights', full['/sax/test/n'].failure_reason)
    methods = [s.method for s in full[_KEY].method_stats]
    self.assertEqual(methods, ['lm.generate', 'lm.score'])
    self.assertFalse(
      full[_KEY].method_stats[0].HasField('p50_latency_on_success_per_second')
    )

  def test_unload_answers_pending_requests(self):
    self.server.load(_KEY)
    self.runner.gate.clear()
    request = lm_pb2.GenerateRequest(model_key=_KEY, text='1,2')
    held = [self.server.lm.Generate.future(request) for _ in range(3)]
    end = time.monotonic() + _TIMEOUT
    while self._status(stats=True).models[0].method_stats[0].pending_reqs < 3:
      self.assertLess(time.monotonic(), end)
    unload = self.modelet.Unload.future(
      modelet_pb2.UnloadRequest(model_key=_KEY), timeout=_TIMEOUT
    )
    while self._status().models[0].model_status != common_pb2.UNLOADING:
      self.assertLess(time.monotonic(), end)
    self._assert_error(
      lambda: self.server.lm.Generate(request), _Code.NOT_FOUND, 'unloaded'
    )
    self.runner.gate.set()
    for call in held:
      self.assertEqual(call.result().texts[0].text, '2,1')
    unload.result()
    self.assertEmpty(self._status().models)

  def test_unload_of_an_absent_model_is_not_found(self):
    for key in ('', _KEY):
      self._assert_error(
        lambda k=key: self.modelet.Unload(
          modelet_pb2.UnloadRequest(model_key=k)
        ),
        _Code.INVALID_ARGUMENT,
        'not loaded here',
      )

  def test_update_reloads_from_another_path_only(self):
    self.server.load(_KEY)
    acls = common_pb2.AccessControlLists(items={'lm.score': 'acl/few'})
    self._update(checkpoint_path='/ckpt', acls=acls)
    self.assertLen(self.loads, 1)
    self.assertEqual(
      self.server.models.entries()[_KEY].spec.acls, {'lm.score': 'acl/few'}
    )
    self._update(checkpoint_path='/new')
    self.assertEqual([s.checkpoint_path for s in self.loads], ['/ckpt', '/new'])
    self.assertEqual(
      self.server.models.entries()[_KEY].spec.acls, {'lm.score': 'acl/few'}
    )

  def test_update_reports_a_failed_reload(self):
    self.server.load(_KEY)
    self._assert_error(
      lambda: self._update(checkpoint_path='/bad'),
      _Code.INVALID_ARGUMENT,
      'bad weights',
    )

  def test_update_of_an_absent_model_is_not_found(self):
    self._assert_error(
      lambda: self._update(checkpoint_path='/c'), _Code.NOT_FOUND, _KEY
    )

  def test_export_and_save_are_not_offered(self):
    self.server.load(_KEY)
    self._assert_error(
      lambda: self.modelet.Export(modelet_pb2.ExportRequest(model_key=_KEY)),
      _Code.UNIMPLEMENTED,
    )
    self._assert_error(
      lambda: self.modelet.Save(modelet_pb2.SaveRequest(model_key=_KEY)),
      _Code.UNIMPLEMENTED,
      'Copy the checkpoint',
    )
    # As upstream, a model that is not loaded is not an error.
    self.modelet.Save(modelet_pb2.SaveRequest(model_key='/sax/test/x'))
    self.modelet.WakeUp(modelet_pb2.WakeUpRequest())

  def test_stopping_answers_calls_in_flight_and_refuses_new_ones(self):
    self.server.load(_KEY)
    self.runner.gate.clear()
    request = lm_pb2.GenerateRequest(model_key=_KEY, text='1,2')
    held = [self.server.lm.Generate.future(request) for _ in range(3)]
    end = time.monotonic() + _TIMEOUT
    while self._status(stats=True).models[0].method_stats[0].pending_reqs < 3:
      self.assertLess(time.monotonic(), end)
    # The engine continues after the server has begun to stop.
    threading.Timer(0.2, self.runner.gate.set).start()
    self.server.stop_server(grace=_TIMEOUT)
    for call in held:
      self.assertEqual(call.result().texts[0].text, '2,1')
    self._assert_error(
      lambda: self.server.lm.Generate(request, timeout=_TIMEOUT),
      _Code.UNAVAILABLE,
    )

  def test_stopping_does_not_wait_for_a_load(self):
    self.load_gate.clear()
    load = self.modelet.Load.future(
      modelet_pb2.LoadRequest(
        model_key=_KEY, model_path='a.B', checkpoint_path='/c'
      )
    )
    end = time.monotonic() + _TIMEOUT
    while not self.loads:
      self.assertLess(time.monotonic(), end)
    self.server.stop_server(grace=3600)
    self._assert_error(load.result, _Code.UNAVAILABLE, 'is stopping')

  def test_load_that_fails_after_its_caller_has_left_logs_no_error(self):
    self.load_gate.clear()
    call = self.modelet.Load.future(
      modelet_pb2.LoadRequest(model_key=_KEY, checkpoint_path='/bad'),
      timeout=_TIMEOUT,
    )
    while not self.loads:
      time.sleep(0.01)
    with self.assertNoLogs('asyncio', level='ERROR'):
      call.cancel()
      unloading = self.modelet.Unload.future(
        modelet_pb2.UnloadRequest(model_key=_KEY), timeout=_TIMEOUT
      )
      while self._status().models[0].model_status != common_pb2.UNLOADING:
        time.sleep(0.01)
      self.load_gate.set()
      unloading.result()
      gc.collect()  # Deleted futures log unread errors.

  def test_health_and_reflection_answer(self):
    channel = grpc.insecure_channel(self.server.address)
    self.addCleanup(channel.close)
    health = health_pb2_grpc.HealthStub(channel).Check(
      health_pb2.HealthCheckRequest(service='sax.Modelet'), timeout=_TIMEOUT
    )
    self.assertEqual(health.status, health_pb2.HealthCheckResponse.SERVING)
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    (answer,) = stub.ServerReflectionInfo(
      iter([reflection_pb2.ServerReflectionRequest(list_services='')]),
      timeout=_TIMEOUT,
    )
    names = {s.name for s in answer.list_services_response.service}
    self.assertContainsSubset({'sax.Modelet', 'sax.server.lm.LMService'}, names)


if __name__ == '__main__':
  absltest.main()
