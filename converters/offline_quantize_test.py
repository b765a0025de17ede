"""Tests of the quantizer program: kills, calibration and reports."""

from html import parser
import json
import os
import random
import subprocess
import sys
import unittest

from absl.testing import absltest
from absl.testing import flagsaver
from absl.testing import parameterized
import numpy as np

from converters import offline_quantize
from converters.testing import compiled
from converters.testing import killed_runs
from converters.testing import small_pax
from converters.testing import unsynced
from saxml_ext.pax import checkpoint
from saxml_ext.pax.testing import checkpoints

_KILLS = 10
# A child process that the test can kill. It quantizes without the delay of
# loading the whole program.
_CHILD = """
import sys
import unittest
from converters.quantize import provenance, quantization

record = provenance.Record(provenance.Options(clipping=True))
quantization.quantize(
  sys.argv[1], sys.argv[2], record, resume=True, measure=True
)
"""


def setUpModule():
  unittest.enterModuleContext(compiled.once())


class _Page(parser.HTMLParser):
  """Collects the relevant parts of an HTML page."""

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
    self.enter_context(unsynced.files())
    self.root = self.create_tempdir().full_path
    self.source = small_pax.write(os.path.join(self.root, 'float'))

  def path(self, name: str) -> str:
    return os.path.join(self.root, name)

  def run_program(self, output: str, **flags) -> dict[str, str]:
    """Runs the program; returns the hashes of all files that it wrote."""
    with flagsaver.flagsaver(
      input_dir=self.source, output_dir=self.path(output), **flags
    ):
      offline_quantize.main(['offline_quantize'])
    return small_pax.digest(self.path(output))

  def test_ten_killed_runs_give_the_same_bytes(self):
    def start(output: str) -> subprocess.Popen:
      return subprocess.Popen(
        [sys.executable, '-c', _CHILD, self.source, self.path(output)],
        env={**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path)},
      )

    def finish(output: str) -> dict[str, str]:
      child = start(output)
      self.assertEqual(child.wait(60), 0)
      return small_pax.digest(self.path(output))

    expected = finish('whole')
    variables = len(checkpoint.Reader(self.path('whole')).specs)
    finished = killed_runs.kill(
      lambda: start('killed'),
      self.path('killed'),
      variables,
      _KILLS,
      random.Random(1),
      0.01,
    )
    self.assertLess(finished[0], finished[_KILLS // 2])
    self.assertLess(finished[_KILLS // 2], variables)
    self.assertEqual(finish('killed'), expected)

  def test_calibrated_report(self):
    calibration = small_pax.write_articles(self.path('cal'), 12)
    articles = small_pax.write_articles(self.path('eval'), 5, 1)
    flags = dict(calibration=calibration, articles=articles)
    first = self.run_program('one', **flags)
    self.assertEqual(self.run_program('two', **flags), first)
    # These articles have as many tokens.
    other = small_pax.write_articles(self.path('other'), 12, 2)
    with self.assertRaisesRegex(SystemExit, '1'):
      self.run_program('two', calibration=other, resume=True)
    self.assertEqual(small_pax.digest(self.path('two')), first)
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

  def test_paths_of_the_published_tool_are_accepted(self):
    expected = self.run_program('short', report=False)
    step = 'checkpoint_00000000/state'
    with flagsaver.flagsaver(
      input_dir=f'{self.source}/{step}',
      output_dir=f'{self.path("long")}/{step}',
      quantization_configs='gptj',
      report=False,
    ):
      offline_quantize.main(['offline_quantize'])
    self.assertEqual(small_pax.digest(self.path('long')), expected)
    checkpoint.Reader(self.path('long'))

  def test_missing_articles_are_reported(self):
    self.run_program('bare')
    with open(self.path('bare/quantization_report.txt'), encoding='utf-8') as f:
      text = f.read()
    self.assertIn('ROUGE: not measured, because --articles is not set', text)
    # The report of a replaced checkpoint would be wrong, so it is deleted.
    files = self.run_program('bare', overwrite=True, report=False)
    self.assertNotIn('quantization_report.json', files)

  def test_checkpoint_of_another_model_is_refused(self):
    layer = 'params.lm.transformer.x_layers_1.'
    gate = f'{layer}ff_layer.ffn_layer1_gate.linear.w'
    norm = f'{layer}layer_norm.bias'
    for changes, message in (
      (
        {gate: np.zeros((4, 4), np.float32)},
        f'it has {gate}. Use a checkpoint',
      ),
      ({norm: None}, f'it has no {norm}. Use a checkpoint'),
      (
        {gate: np.zeros(4, np.float32), norm: None},
        f'it has no {norm}, and it has {gate}. Use',
      ),
    ):
      variables = small_pax.variables() | changes
      path = self.create_tempdir().full_path
      checkpoints.write_checkpoint(
        path, ((n, v) for n, v in variables.items() if v is not None)
      )
      self.check_refusal(dict(input_dir=path), message)

  @parameterized.parameters(
    (dict(input_dir='/nowhere'), '/nowhere cannot be listed'),
    (dict(articles='/nowhere'), "articles: .*No such file.*'/nowhere'"),
    (dict(calibration='/nowhere'), "articles: .*No such file.*'/nowhere'"),
    (
      dict(quantization_configs='gemma7b'),
      'GPT-J model, which does not match --quantization_configs=gemma7b.*'
      'tables for gemma, gpt_neox,.* gptj, granite, llama, mistral, olmo2, phi3,',
    ),
  )
  def test_bad_flags_are_refused(self, flags, message):
    self.check_refusal(flags, message)

  def check_refusal(self, flags, message):
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
