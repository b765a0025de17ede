"""Tests a benchmark that only a module of $HARNESS_BENCHMARKS defines."""

import pathlib

from absl.testing import absltest

from harness.benchmarks import all as benchmarks
from tests.submission import commands

_MODULE = '''\
"""Describes a made-up benchmark: the summaries of eight short articles."""

from harness.benchmarks import benchmark
from harness.benchmarks import gptj
from harness.rules import requirements
from harness.rules import rounds

NOTES = benchmark.Benchmark(
  name='notes',
  title='Notes',
  models={'notes-90': 0.9},
  full_set=8,
  categories=(
    benchmark.Category(requirements.EDGE, (rounds.OFFLINE,), last='v4.0'),
  ),
  reference={'rouge1': 1.5, 'rouge2': 0.5},
  reference_length=1000,
  scores=('rouge1', 'rouge2'),
  bundle=gptj.BUNDLE,
  scenarios=(rounds.OFFLINE,),
  family='gptj',
  prompt=benchmark.Prompt('Summarize: {input}', 400, cuts=True),
  search=benchmark.Search(beams=4, min_tokens=30, max_tokens=128),
  systems=('engine', 'reference'),
)
BENCHMARKS = (NOTES,)
'''


class AddedBenchmarkTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._dir = pathlib.Path(self.create_tempdir().full_path)
    self._modules = self._dir / 'modules'
    self._modules.mkdir()
    (self._modules / 'notes.py').write_text(_MODULE)

  def _run(self, program: str, **flags) -> tuple[int, str]:
    modules = {benchmarks.DIRECTORY: str(self._modules)}
    return commands.run(program, flags, **modules)

  def _page(self, program: str, **flags) -> str:
    page = self._dir / 'page.html'
    code, output = self._run(program, output=page, **flags)
    self.assertEqual(code, 0, output)
    return page.read_text(encoding='utf-8')

  def test_offline_pages_and_a_tree(self):
    (self._dir / 'mine.yaml').write_text(commands.DESCRIPTION)
    tree, job = self._dir / 'tree', self._dir / 'job'
    code, output = self._run(
      'harness/main',
      cache_dir=self._dir / 'cache',
      results_dir=job,
      model='notes-90',
      sample_count=8,
      min_duration=1,
      reference_path='',  # The bundled answers are to another prompt.
      quiet=True,
      submission='--submitter=Example --system_name=vm'
      f' --system_description={self._dir}/mine.yaml --output={tree}',
    )
    self.assertEqual(code, 0, output)
    self.assertIn('open submission to v4.0: 1 results', output)
    result = tree / 'open/Example/results/vm/notes-90/Offline'
    self.assertRegex(
      (result / 'accuracy/accuracy.txt').read_text(), r"'rouge1': [\d.]+"
    )
    self.assertIn('notes-90', self._page('harness/pages/cli/compose'))
    page = self._page('harness/pages/cli/report', result=str(job))
    self.assertIn('as many samples as the official set', page)
    self.assertIn('ROUGE-2', page)

  def test_a_wrong_directory_ends_programs_with_a_message(self):
    (self._modules / 'notes.py').unlink()
    self._modules.rmdir()
    code, output = self._run('harness/pages/cli/compose', output='x.html')
    self.assertEqual(code, 1)
    self.assertEqual(
      output,
      f'HARNESS_BENCHMARKS={self._modules} is not a directory. Set it to a'
      ' directory of modules that define BENCHMARKS, or unset it.\n',
    )


if __name__ == '__main__':
  absltest.main()
