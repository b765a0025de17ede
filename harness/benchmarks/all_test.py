import pathlib

from absl.testing import absltest

from harness.benchmarks import all as benchmarks
from harness.benchmarks import gptj

_MODULE = """\
import dataclasses
from harness.benchmarks import gptj
BENCHMARKS = (
  dataclasses.replace(gptj.GPTJ, name='{name}', models={{'{model}': 0.99}}),
)
"""


class AllTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._dir = pathlib.Path(self.create_tempdir().full_path)

  def _load(self, text: str):
    (self._dir / 'more.py').write_text(text)
    return list(benchmarks.load(str(self._dir)))

  def test_names(self):
    self.assertIs(benchmarks.get('gptj'), gptj.GPTJ)
    with self.assertRaisesRegex(ValueError, "no benchmark 'x'. .* gptj, bert"):
      benchmarks.get('x')
    for name, benchmark in benchmarks.BENCHMARKS.items():
      self.assertEqual(benchmark.name, name)
      for model in benchmark.models:
        self.assertIs(benchmarks.MODELS[model], benchmark)

  def test_families(self):
    self.assertEqual(benchmarks.families(), {'gptj', 'llama'})

  def test_a_module_adds_benchmarks(self):
    (added,) = self._load(_MODULE.format(name='mine', model='mine-99'))
    self.assertEqual(added.name, 'mine')
    self.assertIs(added.search, gptj.GPTJ.search)

  def test_wrong_directories_and_modules_are_refused(self):
    with self.assertRaisesRegex(
      ValueError, 'HARNESS_BENCHMARKS=/none is not a directory. Set it'
    ):
      list(benchmarks.load('/none'))
    for text, message in (
      ('x = 1\n', r"more.py cannot be used \(KeyError\('BENCHMARKS'\)\). It"),
      ('BENCHMARKS = (3,)\n', '3 is not a benchmark.Benchmark'),
      ('BENCHMARKS = 1 / 0\n', 'ZeroDivisionError'),
      (_MODULE.format(name='gptj', model='x'), 'gptj already exists'),
      (_MODULE.format(name='x', model='bert-99'), 'bert-99 already exists'),
    ):
      with self.assertRaisesRegex(ValueError, message):
        self._load(text)


if __name__ == '__main__':
  absltest.main()
