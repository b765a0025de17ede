import contextlib
import dataclasses
import io
import pathlib
import re

from absl.testing import absltest
from absl.testing import flagsaver

from benchmarks.tpu_estimate import chips
from benchmarks.tpu_estimate import lengths as lengths_lib
from benchmarks.tpu_estimate import predict
from benchmarks.tpu_estimate import report
from benchmarks.tpu_estimate import rules
from benchmarks.tpu_estimate import tables
from benchmarks.tpu_estimate.compiled import costs
from benchmarks.tpu_estimate.testing import sets
from saxml_ext.aot.tpu import topologies
from saxml_ext.common.pages.testing import reading

_HEADLINE = re.compile(
  r'^Offline, v5e 2x2, int8: (\d+\.\d) samples/s \(estimate\)$', re.MULTILINE
)
_LLAMA = {**sets.MODEL, 'architecture': {'gated': True}}


class ReportTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.folder = pathlib.Path(self.create_tempdir().full_path)

  def _file(self, name: str, text: str) -> str:
    path = self.folder / name
    path.write_text(text, 'utf-8')
    return str(path)

  def _report(self, *made: costs.Set, **values) -> str:
    paths = [
      self._file(f'{i}.json', costs.write(one)) for i, one in enumerate(made)
    ]
    values = {'samples': 300, 'server': False, **values}
    with flagsaver.flagsaver(costs=paths, **values):
      return report.report()

  def test_one_line_has_the_prediction(self):
    text = self._report(sets.small())
    (rate,) = _HEADLINE.findall(text)
    # There are 8 slots. A prefill takes 10 to 30 ms, and 69.5 * 1.077 - 1 steps
    # take 20 ms each.
    least = 1 / (0.030 + 73.9 * 0.020 / 8)
    most = 1 / (0.010 + 73.9 * 0.020 / 8)
    self.assertBetween(float(rate), 0.9 * least, most)

  def test_unmeasured_share_is_printed(self):
    made = sets.small()
    passes = costs.Cost({costs.ELEMENTWISE: 1e9 * sets.MILLISECOND})
    program = costs.Program(passes, passes, made.programs['decode 8'].memory)
    measured = dataclasses.replace(
      made, programs=dict.fromkeys(made.programs, program)
    )
    # Only the times of the host, of the call and of the empty copy remain.
    for one, share in ((made, '100%'), (measured, '0%')):
      self.assertIn(f'covers {share} of the time', self._report(one))

  def test_sax_is_compared_with_its_measurements(self):
    text = self._report(sets.small(), samples=3200)
    rows = [line.split() for line in text.splitlines() if ' Offline ' in line]
    sax = {row[0]: row for row in rows if row[0] in ('v3.1', 'v4.0')}
    self.assertEqual(sax['v3.1'][2], '9.81')
    self.assertEqual(sax['v4.0'][2], '10.15')
    for row in sax.values():
      self.assertBetween(float(row[-1]), 0.6, 1.7)

  def test_measured_step_is_compared_with_its_prediction(self):
    made = sets.small()
    self.assertNotIn('Beside a measurement', self._report(made))
    sizes = {'num_layers': 80, 'model_dim': 8192, 'hidden_dim': 28672}
    made = dataclasses.replace(
      made,
      topology='v6e 2x4',
      slots=64,
      kv='bfloat16',
      weights='bfloat16',
      model={**made.model, **sizes},
      programs={**made.programs, 'decode 64': made.programs['decode 8']},
    )
    text = self._report(made)
    rows = [
      line.split() for line in text.splitlines() if 'measured step' in line
    ]
    # The floor, then the estimates; the fixture's step is 30 million cycles.
    seconds = 30e6 / chips.BY_CHIP[topologies.V6E].clock
    self.assertEqual(rows[0][-4], f'{1e3 * seconds / 23.1:.2f}')
    many = dataclasses.replace(made, slots=32)
    many.programs['decode 32'] = made.programs['decode 8']
    self.assertNotIn('Beside a measurement', self._report(many))

  def test_counted_lengths_are_used(self):
    counted = lengths_lib.histogram([1919], [128], 'three articles')
    path = self._file('lengths.json', counted)
    text = self._report(sets.small(), lengths=path)
    self.assertIn('three articles', text)
    self.assertNotIn('lognormal', text)
    (rate,) = _HEADLINE.findall(text)
    # Answers at the length limit take no additional steps.
    least = 1 / (0.030 + 127 * 0.020 / 8)
    self.assertAlmostEqual(float(rate), least, delta=0.1)

  def test_other_buckets_can_be_tried(self):
    text = self._report(sets.small())
    finer = self._report(sets.small(), buckets=['256', '512', '1024', '1919'])
    (before,), (after,) = map(_HEADLINE.findall, (text, finer))
    self.assertGreater(float(after), float(before))
    self.assertIn('compiled lengths are interpolated', finer)
    for wrong in (['a'], ['512', '256'], ['0']):
      with self.assertRaisesRegex(ValueError, '--buckets'):
        self._report(sets.small(), buckets=wrong)

  def test_kernels_of_unknown_instructions_are_named(self):
    made = sets.small()
    programs = dict(made.programs)
    step = programs['decode 8'].step
    assert step is not None
    for bundles in (None, 100.0):
      call = costs.KernelCall('attend', 8, 1, bundles)
      programs['decode 8'] = dataclasses.replace(
        programs['decode 8'], step=dataclasses.replace(step, kernels=(call,))
      )
      text = self._report(dataclasses.replace(made, programs=programs))
      self.assertEqual('attend (decode 8, a step)' in text, bundles is None)

  def test_several_sets_are_compared(self):
    text = self._report(sets.small(step=40), sets.small())
    self.assertIn('From first to last', text)
    rows = [line for line in text.splitlines() if line.startswith('  A test')]
    first, last = (float(row.split()[-1]) for row in rows)
    self.assertGreater(last, first)

  def test_server_is_below_offline(self):
    text = self._report(sets.small(), server=True)
    match = re.search(r'Server, v5e 2x2, int8: (\S+) samples/s', text)
    assert match is not None
    (offline,) = _HEADLINE.findall(text)
    self.assertLessEqual(float(match[1]), float(offline))

  def test_llama_has_bounds_on_tokens(self):
    made = sets.small(step=10)
    programs = dict(made.programs)
    last = programs.pop('prefill_and_insert 1 0 1919')
    programs['prefill_and_insert 1 0 2668'] = last
    made = dataclasses.replace(made, beams=1, model=_LLAMA, programs=programs)
    text = self._report(made, server=True, samples=200)
    rows = {
      re.split(r'  +', line.strip())[0]: line.split()[-3:]
      for line in text[text.index('Prediction') :].splitlines()
    }
    rates = [
      float(rows[name][1])
      for name in (
        'Offline',
        'Server, p99 TTFT 2000 ms, TPOT 100 ms',
        'Interactive, p99 TTFT 500 ms, TPOT 30 ms',
      )
    ]
    self.assertEqual(rates, sorted(rates, reverse=True))
    # 8 slots decode 125 tokens at 10 ms each, beside prefills of 10 or 30 ms.
    # At the end, some slots have no request.
    most = 8 / (1.25 + 8 * 0.01)
    self.assertBetween(rates[0], 0.9 * 8 / (1.25 + 8 * 0.03), most)
    for name in ('Server', 'Interactive'):
      self.assertIn(f'\n{name}, v5e 2x2, int8: ', text)
    # A message needs a step, so fewer messages leave more time for the rest.
    more = self._report(made, server=True, stream_interval=8, samples=200)
    rates = [
      float(re.search(r'\nServer, .*: (\S+) samples', output)[1])
      for output in (text, more)
    ]
    self.assertGreaterEqual(rates[1], rates[0])
    self.assertNotIn('Sax as published', text)

  def test_only_beams_take_more_steps_than_tokens(self):
    made = sets.small()
    requests = lengths_lib.ASSUMED.draw(10)
    greedy = dataclasses.replace(made, beams=1)
    same = predict.decoded(greedy, requests, rules.CENTRAL)
    self.assertSequenceEqual(list(same.outputs), list(requests.outputs))
    more = predict.decoded(made, requests, rules.CENTRAL)
    self.assertGreater(more.outputs.sum(), requests.outputs.sum())

  def test_streams_of_gptj_are_refused(self):
    with self.assertRaisesRegex(ValueError, '--stream_interval is 4'):
      self._report(sets.small(), stream_interval=4)

  def test_the_page_has_both_figures(self):
    path = self.folder / 'report.html'
    self._report(sets.small(), page=str(path))
    page = reading.Page(path.read_text('utf-8'))
    self.assertEqual(list(page.data['figures']), ['shares', 'roofs'])
    for name, figure in page.data['figures'].items():
      self.assertIn(f'chart-{name}', page.ids)
      self.assertNotEmpty(figure['data'])
    self.assertIn('plotly.js', page.scripts[0][:200])
    self.assertEqual(page.outside, [])
    self.assertIn('Offline, v5e 2x2, int8', page.text)
    self.assertCountEqual(self.folder.iterdir(), [path, self.folder / '0.json'])

  def test_kept_costs_can_be_reported(self):
    text = self._report()
    self.assertLen(_HEADLINE.findall(text), 1)

  def test_bad_file_is_reported(self):
    path = self._file('bad.json', '{}')
    errors = io.StringIO()
    with (
      flagsaver.flagsaver(costs=[path]),
      contextlib.redirect_stderr(errors),
      self.assertRaisesRegex(SystemExit, 'bad.json is not a file of costs'),
    ):
      report.main(['report'])


class TablesTest(absltest.TestCase):
  def test_columns_are_aligned(self):
    self.assertEqual(
      tables.table([('a', 'bb'), ('ccc', 'd')]), '  a    bb\n  ccc   d'
    )


if __name__ == '__main__':
  absltest.main()
