"""Tests of the copied tree, with a stand-in for upstream Saxml."""

import ast
import os
import pathlib
import shutil
import subprocess
import sys

from absl.testing import absltest
from saxml.server import servable_model_registry

from saxml_ext.params import published  # noqa: F401 Registers or sets up.
from saxml_ext.params import registry
from third_party.saxml import tree

_STAND_IN = pathlib.Path(servable_model_registry.__file__).parents[2]

_PRINT_NAMES = """
import pathlib, sys
from saxml.gptj_overlay import gptj
from saxml.server import servable_model_registry
for name, module in list(sys.modules.items()):
  if name.startswith(('saxml.', 'saxml_ext.')) and '.testing' not in name:
    if module.__file__ is not None:  # A namespace package has none.
      assert pathlib.Path(module.__file__).is_relative_to(sys.argv[1]), module
print(*sorted(servable_model_registry.get_all()))
"""

_REQUIREMENTS = """\
fiddle @ git+https://github.com/google/fiddle
    # via praxis
flax @ git+https://github.com/google/flax
praxis @ git+https://github.com/google/praxis@f684999
flaxformer @ git+https://github.com/google/flaxformer
"""


class TreeTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.temp = pathlib.Path(self.create_tempdir().full_path)
    self.upstream = self.temp / 'upstream'
    self.out = self.temp / 'some' / 'where'
    for path in tree.NEEDED:
      file = self.upstream / path
      file.parent.mkdir(parents=True, exist_ok=True)
      if (_STAND_IN / path).exists():
        shutil.copyfile(_STAND_IN / path, file)
      else:
        file.touch()

  def test_params_are_registered_in_the_tree(self):
    tree.lay(self.upstream, self.out)
    path = [str(self.out), *(each for each in sys.path if each)]
    printed = subprocess.run(
      [sys.executable, '-c', _PRINT_NAMES, str(self.out)],
      check=True,
      cwd=self.out,
      env={**os.environ, 'PYTHONPATH': os.pathsep.join(path)},
      stdout=subprocess.PIPE,
      text=True,
      timeout=60,
    ).stdout
    expected = [n for n in registry.names() if n.startswith('saxml.server.')]
    self.assertEqual(printed.split(), expected)

  def test_build_files_name_every_source(self):
    tree.lay(self.upstream, self.out)
    for path in tree.FILES:
      if path.endswith('.py'):
        package = (
          'saxml_ext' if path.startswith('saxml_ext') else 'saxml/gptj_overlay'
        )
        source = os.path.relpath(path, package)
        build = (self.out / package / 'BUILD').read_text()
        self.assertIn(f'"{source}"', build)

  def test_requirements_from_a_newest_commit_are_pinned(self):
    (self.upstream / 'requirements.txt').write_text(_REQUIREMENTS)
    tree.lay(self.upstream, self.out)
    lines = (self.out / 'requirements.txt').read_text().splitlines()
    self.assertEqual(
      lines[:3], ['fiddle==0.3.0', '    # via praxis', 'flax==0.8.1']
    )
    self.assertEqual(lines[3:], _REQUIREMENTS.splitlines()[3:])

  def test_requirements_with_a_version_are_kept(self):
    text = 'fiddle==0.2.11\nflax==0.7.4\n'
    (self.upstream / 'requirements.txt').write_text(text)
    tree.lay(self.upstream, self.out)
    self.assertEqual((self.out / 'requirements.txt').read_text(), text)

  def test_sources_parse_as_upstreams_python(self):
    for path, source in tree.FILES.items():
      if path.endswith('.py'):
        with open(pathlib.Path(tree.__file__).parents[2] / source) as file:
          ast.parse(file.read(), path, feature_version=(3, 10))

  def test_leaves_out_git_and_what_bazel_built(self):
    (self.upstream / '.git').mkdir()
    (self.upstream / 'bazel-out').symlink_to(self.temp)
    (self.upstream / 'saxml' / 'bazel-notes').touch()
    (self.upstream / 'broken').symlink_to('nowhere')
    tree.lay(self.upstream, self.out)
    self.assertFalse((self.out / '.git').exists())
    self.assertFalse((self.out / 'bazel-out').is_symlink())
    self.assertTrue((self.out / 'saxml' / 'bazel-notes').exists())
    self.assertTrue((self.out / 'broken').is_symlink())

  def test_refuses_another_tree(self):
    (self.upstream / 'saxml/server/build_defs.bzl').unlink()
    with self.assertRaisesRegex(
      FileNotFoundError, 'It lacks saxml/server/build_defs.bzl$'
    ):
      tree.lay(self.upstream, self.out)
    self.assertFalse(self.out.exists())

  def test_refuses_to_overwrite(self):
    tree.lay(self.upstream, self.out)
    with self.assertRaisesRegex(FileExistsError, 'where exists. Move it'):
      tree.lay(self.upstream, self.out)
    with self.assertRaisesRegex(FileExistsError, 'already has saxml/gptj_over'):
      tree.lay(self.out, self.temp / 'again')


if __name__ == '__main__':
  absltest.main()
