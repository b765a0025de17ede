"""Tests for tree, with a stand-in for a checkout of upstream Saxml."""

import ast
import os
import pathlib
import shutil
import subprocess
import sys

from absl.testing import absltest
from saxml.server import servable_model_registry

from third_party.saxml import tree

_STAND_IN = pathlib.Path(servable_model_registry.__file__).parents[2]

_PRINT_NAMES = """
import pathlib, sys
from saxml.gptj_overlay import gptj
from saxml.server import servable_model_registry
from saxml_ext.params import registry
for module in (gptj, servable_model_registry, registry):
  assert pathlib.Path(module.__file__).is_relative_to(sys.argv[1]), module
print(*sorted(servable_model_registry.get_all()))
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
    names = [name.rpartition('.')[2] for name in printed.split()]
    self.assertEqual(
        names,
        [
            'GPTJ',
            'GPTJ4BF16BS32',
            'GPTJ4INT8BS32',
            'GPTJ4TokenizedBF16BS32',
            'GPTJ4TokenizedINT8BS32',
            'GPTJ4TokenizedINT8BS32XLA',
            'GPTJ4TokenizedINT8BS32XLAEarly',
            'GPTJ4TokenizedINT8BS32XLAWait40MB6',
            'GPTJ4TokenizedINT8BS32XLAWait40MB6Offline',
            'GPTJ4TokenizedINT8BS32XLAWait40MB6Server',
        ],
    )

  def test_build_files_name_every_source(self):
    tree.lay(self.upstream, self.out)
    for path in tree.FILES:
      if path.endswith('.py'):
        package = (
            'saxml_ext'
            if path.startswith('saxml_ext')
            else ('saxml/gptj_overlay')
        )
        source = os.path.relpath(path, package)
        build = (self.out / package / 'BUILD').read_text()
        self.assertIn(f'"{source}"', build)

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
        FileNotFoundError, 'it lacks saxml/server/build_defs.bzl$'
    ):
      tree.lay(self.upstream, self.out)
    self.assertFalse(self.out.exists())

  def test_refuses_to_overwrite(self):
    tree.lay(self.upstream, self.out)
    with self.assertRaisesRegex(FileExistsError, 'where exists; move it'):
      tree.lay(self.upstream, self.out)
    with self.assertRaisesRegex(FileExistsError, 'already has saxml/gptj_over'):
      tree.lay(self.out, self.temp / 'again')


if __name__ == '__main__':
  absltest.main()
