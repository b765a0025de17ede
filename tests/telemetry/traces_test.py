"""Tests that one request is one trace in the client and both servers."""

import time

from absl.testing import absltest
from opentelemetry.sdk import trace
from opentelemetry.sdk.trace import export
from opentelemetry.sdk.trace.export import in_memory_span_exporter

from saxml_ext.client import sax
from saxml_ext.common.telemetry import tracing
from tests.telemetry import one_cell

_TIMEOUT = 120


class TracesTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.exporter = in_memory_span_exporter.InMemorySpanExporter()
    provider = trace.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(self.exporter))
    self.cell = one_cell.OneCell(self.create_tempdir().full_path)
    self.addCleanup(self.cell.stop)
    tracing.use(provider)
    self.addCleanup(tracing.use, None)
    sax.SetRoot(self.cell.sax_root)

  def tree(self, root: str, parts: int) -> list[str]:
    """Returns the spans below the last root of a name, sorted.

    Each one is a text "parent > child".
    """
    end = time.monotonic() + _TIMEOUT
    while True:
      spans = self.exporter.get_finished_spans()
      roots = [s for s in spans if s.name == root and s.parent is None]
      if roots:
        number = roots[-1].context.trace_id
        by_id = {
          s.context.span_id: s for s in spans if s.context.trace_id == number
        }
        if len(by_id) >= parts:
          break
      self.assertLess(time.monotonic(), end, [s.name for s in spans])
      time.sleep(0.01)
    return sorted(
      f'{by_id[s.parent.span_id].name} > {s.name}'
      for s in by_id.values()
      if s.parent is not None
    )

  def test_failed_calls_are_marked(self):
    with self.assertRaises(sax.SaxError):
      sax.Unpublish(one_cell.MODEL)
    self.tree('sax.Admin/Unpublish', 2)
    for span in self.exporter.get_finished_spans():
      self.assertFalse(span.status.is_ok, span.name)
      self.assertIn('not found', span.status.description)

  def test_publish_and_generate_are_one_trace(self):
    sax.Publish(one_cell.MODEL, one_cell.PATH, '/ckpt', 1)
    sax.WaitForReady(one_cell.MODEL, 1)
    self.assertEqual(
      self.tree('sax.Admin/Publish', 3),
      [
        'sax.Admin/Publish > sax.Admin/Publish',
        'sax.Admin/Publish > sax.Modelet/Load',
      ],
    )
    model = sax.Model(one_cell.MODEL).LM()
    answers = model.Generate('1,2,3')
    self.assertEqual(answers[0][0], '3,2,1')
    name = 'sax.server.lm.LMService/Generate'
    self.assertEqual(
      self.tree('lm.generate', 7),
      sorted(
        [f'lm.generate > {name}']
        + [
          f'{name} > {part}'
          for part in ('tokenize', 'queue', 'prefill', 'decode', 'detokenize')
        ]
      ),
    )
    spans = {s.name: s for s in self.exporter.get_finished_spans()}
    self.assertEqual(spans['prefill'].attributes['sax.prompt_tokens'], 3)
    self.assertEqual(spans['decode'].attributes['sax.output_tokens'], 3)
    named = {
      spans[span_name].attributes['sax.request_id']
      for span_name in ('lm.generate', name)
    }
    self.assertLen(named, 1)
    self.assertEqual(spans[name].attributes['sax.model'], one_cell.MODEL)
    sax.Unpublish(one_cell.MODEL)
    self.assertEqual(
      self.tree('sax.Admin/Unpublish', 3),
      [
        'sax.Admin/Unpublish > sax.Admin/Unpublish',
        'sax.Admin/Unpublish > sax.Modelet/Unload',
      ],
    )


if __name__ == '__main__':
  absltest.main()
