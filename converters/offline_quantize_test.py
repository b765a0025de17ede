"""Tests of the program: killed and resumed, calibrated, reporting."""

from html import parser
import json
import os
import random
import signal
import subprocess
import sys
import time

from absl.testing import absltest
from absl.testing import flagsaver
from absl.testing import parameterized

from converters import offline_quantize
from converters import quantization_fixture
from saxml_ext.pax import checkpoint

_KILLS = 10
# Quantizes in a process that the test can kill, without the time that the
# program takes to load jax.
_CHILD = """
import sys
from converters import quantization, quantization_options, quantization_record
record = quantization_record.Record(quantization_options.Options(clipping=True))
print('begin', flush=True)
quantization.quantize(sys.argv[1], sys.argv[2], record, resume=True)
"""


class _Page(parser.HTMLParser):
  """Collects what matters of a page."""

  def __init__(self):
    super().__init__()
    self.tags, self.open, self.links = set(), [], []

  def handle_starttag(self, tag, attrs):
    self.tags.add(tag)
    if tag != 'meta':
      self.open.append(tag)
    self.links += [v for k, v in attrs if k in ('src', 'href')]

  def handle_startendtag(self, tag, attrs):
    self.tags.add(tag)

  def handle_endtag(self, tag):
    assert self.open.pop() == tag, tag


class OfflineQuantizeTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.root = self.create_tempdir().full_path
    self.source = quantization_fixture.write(os.path.join(self.root, 'float'))

  def path(self, name: str) -> str:
    return os.path.join(self.root, name)

  def run_program(self, output: str, **flags) -> dict[str, str]:
    """Runs it and returns hashes of all it wrote."""
    with flagsaver.flagsaver(
        input_dir=self.source, output_dir=self.path(output), **flags
    ):
      offline_quantize.main(['offline_quantize'])
    return quantization_fixture.digest(self.path(output))

  def test_killed_ten_times(self):
    def start(output: str) -> subprocess.Popen:
      return subprocess.Popen(
          [sys.executable, '-c', _CHILD, self.source, self.path(output)],
          env={**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path)},
          stdout=subprocess.PIPE,
      )

    whole = start('whole')
    whole.stdout.readline()
    begin = time.monotonic()
    whole.communicate(timeout=60)
    seconds = time.monotonic() - begin
    self.assertEqual(whole.returncode, 0)
    expected = quantization_fixture.digest(self.path('whole'))

    rng = random.Random(1)
    interrupted = 0
    for _ in range(_KILLS):
      child = start('killed')
      child.stdout.readline()
      time.sleep(rng.uniform(0, seconds / 2))
      child.send_signal(signal.SIGKILL)
      interrupted += child.wait(60) == -signal.SIGKILL
      child.stdout.close()
    self.assertGreater(interrupted, _KILLS // 2)
    last = start('killed')
    last.communicate(timeout=60)
    self.assertEqual(last.returncode, 0)
    self.assertEqual(quantization_fixture.digest(self.path('killed')), expected)

  def test_calibrated_report(self):
    calibration = quantization_fixture.write_articles(self.path('cal'), 12)
    articles = quantization_fixture.write_articles(self.path('eval'), 5, 1)
    flags = dict(calibration=calibration, articles=articles)
    first = self.run_program('one', **flags)
    self.assertEqual(self.run_program('two', **flags), first)
    with open(self.path('one/quantization_report.txt'), encoding='utf-8') as f:
      text = f.read()
    self.assertRegex(text, 'smoothing 0, GPTQ .*calibrated on 12 articles')
    self.assertRegex(text, r'2 self_attention.post +0\.0\d+ +4\d\.')
    self.assertRegex(text, r'int8 +\d\.\d+ +0\.\d+ +\S+ +\d+\.\d+%')
    self.assertRegex(text, r'float32 +(\d+\.\d+ +){3}\d+ +5 of 5 +\d+')
    self._check_page(self.path('one/quantization_report.html'))
    with open(self.path('one/quantization_report.json')) as f:
      calibrated = json.load(f)
    self.run_program('plain', articles=articles)
    with open(self.path('plain/quantization_report.json')) as f:
      plain = json.load(f)
    for exact, rough in zip(calibrated['logits'], plain['logits']):
      self.assertLess(exact['mean_error'], rough['mean_error'] / 2)

  def _check_page(self, path: str) -> None:
    page = _Page()
    with open(path, encoding='utf-8') as f:
      page.feed(f.read())
    self.assertEmpty(page.open)
    self.assertEmpty(page.links)
    self.assertContainsSubset({'svg', 'polyline', 'table', 'style'}, page.tags)
    self.assertNoCommonElements({'script', 'link', 'img'}, page.tags)

  def test_paths_as_the_published_tool_takes_them(self):
    expected = self.run_program('short', report=False)
    step = 'checkpoint_00000000/state'
    with flagsaver.flagsaver(
        input_dir=f'{self.source}/{step}',
        output_dir=f'{self.path("long")}/{step}',
        report=False,
    ):
      offline_quantize.main(['offline_quantize'])
    self.assertEqual(quantization_fixture.digest(self.path('long')), expected)
    checkpoint.Reader(self.path('long'))

  def test_no_articles(self):
    self.run_program('bare')
    with open(self.path('bare/quantization_report.txt'), encoding='utf-8') as f:
      text = f.read()
    self.assertIn('ROUGE: not measured: --articles was not given', text)
    # The report of a checkpoint that is no more would be a false one.
    files = self.run_program('bare', overwrite=True, report=False)
    self.assertNotIn('quantization_report.json', files)

  @parameterized.parameters(
      (dict(input_dir='/nowhere'), '/nowhere cannot be listed'),
      (dict(articles='/nowhere'), "articles: .*No such file.*'/nowhere'"),
      (dict(calibration='/nowhere'), "articles: .*No such file.*'/nowhere'"),
  )
  def test_refusals(self, flags, message):
    flags = dict(input_dir=self.source, output_dir=self.path('none')) | flags
    errors = self.path('stderr')
    with flagsaver.flagsaver(**flags), open(errors, 'w') as f:
      stderr, sys.stderr = sys.stderr, f
      try:
        with self.assertRaises(SystemExit) as caught:
          offline_quantize.main(['offline_quantize'])
      finally:
        sys.stderr = stderr
    self.assertEqual(caught.exception.code, 1)
    with open(errors) as f:
      self.assertRegex(f.read(), message)
    self.assertFalse(os.path.exists(self.path('none')))


if __name__ == '__main__':
  absltest.main()
