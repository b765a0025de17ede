"""Tests of spans, with OpenTelemetry's own in-memory exporter."""

import contextvars
import os
import subprocess
import sys
import time
from unittest import mock

from absl.testing import absltest
from opentelemetry.sdk import trace
from opentelemetry.sdk.trace import export
from opentelemetry.sdk.trace.export import in_memory_span_exporter

from saxml_ext.common import errors
from saxml_ext.common.telemetry import tracing

_IMPORTS = """
import sys
sys.path[:] = sys.argv[1:]
from saxml_ext.common.telemetry import tracing
tracing.configure('x')
with tracing.client_call('a', {}), tracing.part('b'):
  pass
print([m for m in sys.modules if m.startswith('opentelemetry')])
"""


class TracingTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.exporter = in_memory_span_exporter.InMemorySpanExporter()
    provider = trace.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(self.exporter))
    tracing.use(provider)
    self.addCleanup(tracing.use, None)

  def spans(self) -> dict[str, trace.ReadableSpan]:
    return {s.name: s for s in self.exporter.get_finished_spans()}

  def test_one_call_is_one_tree(self):
    with tracing.client_call('lm.generate', {'sax.model': 'm'}) as metadata:
      with tracing.server_call('LMService/Generate', metadata):
        parent = tracing.current()
        with tracing.part('decode'):
          self.assertIn('trace', dict(tracing.ids()))
        now = time.monotonic()
        tracing.record('queue', parent, now - 1, now, {'n': 1})
    spans = self.spans()
    self.assertLen({s.context.trace_id for s in spans.values()}, 1)
    client, server = spans['lm.generate'], spans['LMService/Generate']
    self.assertIsNone(client.parent)
    self.assertEqual(client.attributes['sax.model'], 'm')
    self.assertEqual(server.parent.span_id, client.context.span_id)
    for name in ('decode', 'queue'):
      self.assertEqual(spans[name].parent.span_id, server.context.span_id)
    queue = spans['queue']
    self.assertAlmostEqual(queue.end_time - queue.start_time, 1e9, delta=1e3)
    self.assertAlmostEqual(queue.end_time, time.time_ns(), delta=60e9)

  def test_periodic_calls_have_no_spans(self):
    with tracing.client_call('sax.Admin/WatchLoc', {}) as metadata:
      with tracing.server_call('sax.Modelet/GetStatus', metadata) as span:
        self.assertIsNone(span)
    self.assertEmpty(self.spans())

  def test_errors_are_recorded(self):
    with self.assertRaises(errors.NotFound):
      with tracing.client_call('call', {}):
        raise errors.NotFound('no such model')
    status = self.spans()['call'].status
    self.assertFalse(status.is_ok)
    self.assertIn('no such model', status.description)

  def test_request_id_of_the_caller_is_kept(self):
    given = ((tracing.REQUEST_ID, 'mine'),)
    with tracing.client_call('call', {}, given) as added:
      self.assertEqual([key for key, _ in added], ['traceparent'])
    self.assertEqual(self.spans()['call'].attributes['sax.request_id'], 'mine')

  def test_disabled_tracing_records_nothing(self):
    tracing.use(None)
    with tracing.client_call('call', {}) as metadata:
      self.assertEqual([key for key, _ in metadata], [tracing.REQUEST_ID])
    with tracing.server_call('call', ()) as span:
      self.assertIsNone(span)
    self.assertEqual(tracing.carrier(), ())
    self.assertEqual(tracing.ids(), ())
    done = subprocess.run(
      [sys.executable, '-c', _IMPORTS, *sys.path],
      capture_output=True,
      text=True,
      check=True,
    )
    self.assertEqual(done.stdout, '[]\n')

  def test_environment_enables_tracing(self):
    for variables, expected in (
      ({}, False),
      ({'OTEL_EXPORTER_OTLP_ENDPOINT': 'http://x'}, True),
      ({'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT': 'http://x'}, True),
      (
        {
          'OTEL_EXPORTER_OTLP_ENDPOINT': 'http://x',
          'OTEL_SDK_DISABLED': 'true',
        },
        False,
      ),
      (
        {
          'OTEL_EXPORTER_OTLP_ENDPOINT': 'http://x',
          'OTEL_TRACES_EXPORTER': 'none',
        },
        False,
      ),
    ):
      with mock.patch.dict(os.environ, variables):
        self.assertEqual(tracing.is_enabled(), expected, variables)
    self.assertTrue(tracing.is_enabled('http://localhost:4317'))
    variables = {'OTEL_EXPORTER_OTLP_PROTOCOL': 'http/protobuf'}
    with mock.patch.dict(os.environ, variables):
      with self.assertRaisesRegex(errors.InvalidArgument, '4317'):
        tracing.configure('x', 'http://localhost:4318')


class RequestIdTest(absltest.TestCase):
  def test_request_id_of_a_call_is_used(self):
    metadata = (('a', 'b'), (tracing.REQUEST_ID, 'mine-1'))
    self.assertEqual(tracing.id_of(metadata), 'mine-1')

  def test_missing_or_invalid_request_id_is_replaced(self):
    bad = ('', 'two words', 'a\nb', 'x' * 129, b'bytes')
    made = [tracing.id_of(((tracing.REQUEST_ID, text),)) for text in bad]
    made.append(tracing.id_of(()))
    self.assertLen(set(made), len(made))
    for text in made:
      self.assertRegex(text, r'^[0-9a-f]{16}$')

  def test_request_id_belongs_to_its_context(self):
    def inner() -> str:
      tracing.use_id('inner')
      return tracing.current_id()

    token = tracing.use_id('outer')
    self.assertEqual(contextvars.copy_context().run(inner), 'inner')
    self.assertEqual(tracing.current_id(), 'outer')
    tracing.restore_id(token)
    self.assertEqual(tracing.current_id(), '')


if __name__ == '__main__':
  absltest.main()
