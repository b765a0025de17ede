"""Tests that stock Sax's labels lead to programs and keep its package name."""

import importlib.util
import pathlib
import subprocess

from absl.testing import absltest
from absl.testing import parameterized

# The runfiles contain the targets of the labels in saxml/.
_ROOT = pathlib.Path(__file__).parents[2]


class LabelsTest(parameterized.TestCase):
  @parameterized.parameters(
    ('saxml_ext/admin/admin_config', ('sax_cell', 'sax_root', 'fs_root')),
    ('saxml_ext/admin/admin_server', ('sax_cell', 'sax_root', 'port')),
    (
      'saxml_ext/server/server',
      ('sax_cell', 'port', 'platform_chip', 'platform_topology'),
    ),
  )
  def test_programs_have_the_flags_of_the_guides(self, program, flags):
    output = self._output(program, '--helpfull')
    for flag in (*flags, 'alsologtostderr'):
      self.assertRegex(output, rf'--(\[no\])?{flag}\b')

  def test_saxutil_has_the_commands_of_the_guides(self):
    output = self._output('saxml_ext/client/saxutil', 'help')
    for command in ('publish', 'unpublish', 'lm.generate'):
      self.assertIn(command, output)

  def test_upstreams_package_is_not_shadowed(self):
    # Python prefers a package that it finds later to a folder without
    # __init__.py. Such folders share their name with each other, like those of
    # the overlay.
    spec = importlib.util.find_spec('saxml')
    if spec is not None:
      self.assertIsNone(spec.origin)
    self.assertEmpty(list((_ROOT / 'saxml').rglob('*.py')))

  def _output(self, program: str, *args: str) -> str:
    return subprocess.run(
      [_ROOT / program, *args],
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
      timeout=300,
    ).stdout


if __name__ == '__main__':
  absltest.main()
