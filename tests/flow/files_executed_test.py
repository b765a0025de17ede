"""Compares the traced files with the lists in docs/architecture.md."""

import pathlib
import re

from absl.testing import absltest
from absl.testing import parameterized

from tests.flow import files_executed


def _documented(name: str) -> tuple[int, set[str]]:
  """Returns the number and the files of a list in docs/architecture.md."""
  text = pathlib.Path('docs/architecture.md').read_text(encoding='utf-8')
  block = re.search(rf'^{name}: (\d+) files\n((?:\S.*\n)+)', text, re.MULTILINE)
  assert block, f'docs/architecture.md has no list of the files of {name}'
  return int(block[1]), {
    f'{folder}/{module}.py'
    for folder, modules in re.findall(r'^(\S+): (.+)$', block[2], re.MULTILINE)
    for module in modules.split()
  }


class FilesExecutedTest(parameterized.TestCase):
  @parameterized.parameters(files_executed.TRACES.items())
  def test_every_file_that_runs_is_documented(self, name, trace):
    files = set(trace(self.create_tempdir().full_path))
    _, limit = _documented(name)
    self.assertContainsSubset({*files}, limit)
    # Some files run only on some machines, such as those of a GPU.
    self.assertLess(len(limit - files), 5)

  @parameterized.parameters(*files_executed.TRACES)
  def test_number_is_that_of_the_list(self, name):
    number, files = _documented(name)
    self.assertLen(files, number)

  def test_lines_have_one_folder_each(self):
    self.assertEqual(
      list(files_executed.lines(['b/d.py', 'a/c.py', 'b/a.py'])),
      ['a: c', 'b: a d'],
    )


if __name__ == '__main__':
  absltest.main()
