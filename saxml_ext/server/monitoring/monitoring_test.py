"""Tests of a model server's HTTP port, with a fake engine."""

import asyncio
from collections.abc import Sequence
import dataclasses
import http.client
import os
import pathlib
import time
from unittest import mock

from absl.testing import absltest
import grpc
from grpc_health.v1 import health_pb2
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha import reflection_pb2_grpc
from prometheus_client import parser

from saxml_ext.common import grpc_util
from saxml_ext.common.telemetry import web
from saxml_ext.params import gptj
from saxml_ext.protobuf import lm_pb2
from saxml_ext.protobuf import modelet_pb2
from saxml_ext.server.monitoring import monitoring_app
from saxml_ext.server.testing import fake_runner
from saxml_ext.server.testing import server_fixture

_MODEL = '/sax/test/m'
_TIMEOUT = 120
_SERVICES = {
  'grpc.health.v1.Health',
  'sax.Modelet',
  'sax.completion.Completion',
  'sax.server.lm.LMService',
}


class _Params(gptj.TinyTokenizedFP32):
  INPUT_SEQ_LEN = 8
  BUCKET_KEYS = None
  MAX_LIVE_BATCHES = 1


class MonitoringTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.runner = fake_runner.FakeRunner(num_slots=2)
    self.server = server_fixture.ServerFixture(
      server_fixture.fake_load_fn(_Params, self.runner)
    )
    self.addCleanup(self.server.stop)
    self.addCleanup(self.runner.gate.set)
    self.serves = True
    self.folder = self.create_tempdir().full_path
    self.start([], self.folder)

  def start(self, expected: list[str], folder: str) -> None:
    pages = monitoring_app.Pages(
      self.server.models, lambda: self.serves, expected, folder
    )
    server = web.WebServer(pages.app())
    self.server.run(server.start(0))
    self.addCleanup(lambda: self.server.run(server.stop()))
    self.port = server.port

  def ask(
    self, path: str, method: str = 'GET', **headers: str
  ) -> tuple[int, str]:
    connection = http.client.HTTPConnection(
      '127.0.0.1', self.port, timeout=_TIMEOUT
    )
    connection.request(method, path, headers=headers)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, text

  def scrape(self) -> dict[tuple[str, ...], float]:
    """Returns the values by name and label values, sorted by label name."""
    status, text = self.ask('/metrics')
    self.assertEqual(status, 200)
    return {
      (s.name, *(s.labels[name] for name in sorted(s.labels))): s.value
      for family in parser.text_string_to_metric_families(text)
      for s in family.samples
    }

  def generate(self, text: str) -> grpc.Future:
    return self.server.lm.Generate.future(
      lm_pb2.GenerateRequest(model_key=_MODEL, text=text), timeout=_TIMEOUT
    )

  def test_answers_tokens_and_refusals_are_counted(self):
    self.server.load(_MODEL)
    self.generate('1,2,3').result()
    self.runner.gate.clear()
    end = time.monotonic() + _TIMEOUT
    held = [self.generate('4,5')]
    # The first request gets a slot and stays in its step ...
    while len(self.runner.max_steps) < 2:
      self.assertLess(time.monotonic(), end)
      time.sleep(0.001)
    # ... and the second request waits for a free slot.
    held.append(self.generate('4,5'))
    waiting = ('sax_requests_waiting', _MODEL)
    while (metrics := self.scrape())[waiting] != 1:
      self.assertLess(time.monotonic(), end, metrics)
    self.assertLen(held, 2)
    with self.assertRaises(grpc.RpcError):
      self.generate('6').result()
    metrics = self.scrape()
    method = ('lm.generate', _MODEL)
    for name, value in (
      (('sax_slots', _MODEL), 2),
      (('sax_requests_waiting', _MODEL), 1),
      (('vllm:num_requests_running', _MODEL), 1),
      (('vllm:num_requests_waiting', _MODEL), 1),
      (('vllm:kv_cache_usage_perc', _MODEL), 0.5),
      (('sax_requests_total', 'OK', *method), 1),
      (('sax_requests_total', 'RESOURCE_EXHAUSTED', *method), 1),
      (('sax_requests_expired_total', *method), 0),
      (('sax_prompt_tokens_total', *method), 3),
      (('sax_output_tokens_total', *method), 3),
      (('sax_queue_seconds_count', *method), 1),
      (('sax_request_seconds_bucket', '+Inf', *method), 1),
      (('sax_time_per_output_token_seconds_count', *method), 1),
      (('sax_model_state', _MODEL, 'LOADED'), 1),
      (('sax_model_state', _MODEL, 'FAILED'), 0),
    ):
      self.assertEqual(metrics.get(name), value, name)
    self.assertGreater(metrics['sax_model_load_seconds', _MODEL], 0)
    self.assertIn(('process_resident_memory_bytes',), metrics)
    status = self.server.modelet.GetStatus(
      modelet_pb2.GetStatusRequest(include_method_stats=True)
    )
    load = status.models[0].load
    self.assertEqual((load.running, load.slots, load.queued), (1, 2, 1))
    self.assertEqual((load.answered, load.refused, load.failed), (1, 1, 0))
    self.assertEqual(load.output_tokens, 3)

  def test_programs_are_counted_while_some_are_pending(self):
    self.server.load(_MODEL)
    [(key, entry)] = self.server.models.entries().items()
    entry = dataclasses.replace(
      entry, model=dataclasses.replace(entry.model, programs=lambda: (4, 11))
    )
    self.enterContext(
      mock.patch.object(self.server.models, 'entries', lambda: {key: entry})
    )
    values = self.scrape()
    self.assertEqual(values['sax_programs', _MODEL, 'ready'], 4)
    self.assertEqual(values['sax_programs', _MODEL, 'pending'], 7)

  def test_server_is_ready_once_expected_models_are_loaded(self):
    self.assertEqual(self.ask('/readyz'), (200, 'ok\n'))
    self.start([_MODEL], '')
    self.assertEqual(self.ask('/readyz'), (503, f'{_MODEL} is absent\n'))
    self.assertEqual(self.ask('/healthz'), (200, 'ok\n'))
    self.server.load(_MODEL)
    self.assertEqual(self.ask('/readyz'), (200, 'ok\n'))
    other = '/sax/test/other'
    self.assertEqual(
      self.ask(f'/readyz?model={other}'), (503, f'{other} is absent\n')
    )
    self.serves = False
    self.assertEqual(self.ask('/readyz')[0], 503)
    self.assertEqual(self.ask('/healthz')[0], 200)

  def test_grpc_health_and_reflection_answer(self):
    with grpc_util.channel(self.server.address) as channel:
      health = health_pb2_grpc.HealthStub(channel)
      reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
      request = reflection_pb2.ServerReflectionRequest(list_services='')
      call = reflection.ServerReflectionInfo(iter([request]), timeout=_TIMEOUT)
      response = next(call)
      call.cancel()
      services = {s.name for s in response.list_services_response.service}
      self.assertContainsSubset(_SERVICES, services)
      for name in ('', *services):
        status = health.Check(
          health_pb2.HealthCheckRequest(service=name), timeout=_TIMEOUT
        ).status
        self.assertEqual(status, health_pb2.HealthCheckResponse.SERVING, name)

  def test_profile_is_returned(self):
    self.assertEqual(self.ask('/profile')[0], 405)
    self.assertEqual(self.ask('/profile?seconds=x', 'POST')[0], 400)
    self.assertEqual(self.ask('/profile?seconds=nan', 'POST')[0], 400)
    self.assertEqual(self.ask('/profile?seconds=61', 'POST')[0], 400)
    for headers in (
      {'Host': 'evil.example'},
      {'Origin': 'http://evil.example'},
      {'Sec-Fetch-Site': 'cross-site'},
    ):
      status, _ = self.ask('/profile?seconds=0.1', 'POST', **headers)
      self.assertEqual(status, 403, headers)
    self.assertEmpty(os.listdir(self.folder))
    status, text = self.ask('/profile?seconds=0.1', 'POST')
    self.assertEqual(status, 200, text)
    profiles = [p for p in pathlib.Path(self.folder).rglob('*') if p.is_file()]
    self.assertNotEmpty(profiles)
    self.start([], '')
    status, text = self.ask('/profile?seconds=0.1', 'POST')
    self.assertEqual(status, 403)
    self.assertIn('--profile_dir', text)


class ProfilesTest(absltest.TestCase):
  def test_second_profile_is_refused(self):
    async def both() -> Sequence[object]:
      taken = monitoring_app.Profiles(self.create_tempdir().full_path)
      return await asyncio.gather(
        taken.take(0.1), taken.take(0.1), return_exceptions=True
      )

    first, second = asyncio.run(both())
    self.assertIsInstance(first, str)
    self.assertRegex(str(second), 'another profile')


if __name__ == '__main__':
  absltest.main()
