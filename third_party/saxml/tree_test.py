"""Tests of the copied tree, with a stand-in for upstream Saxml."""

import ast
import os
import pathlib
import re
import shutil
import subprocess
import sys

from absl.testing import absltest
from absl.testing import parameterized
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

# The overlay imports these files or builds on them.
_NEEDED = (
  'WORKSPACE',
  'requirements.txt',
  'saxml/saxml.bzl',
  'saxml/server/build_defs.bzl',
  'saxml/server/model_service_main.py',
  'saxml/server/pax/lm/params/gptj.py',
  'saxml/server/pax/lm/params/template.py',
  'saxml/server/pax/quantization.py',
  'saxml/server/servable_model_registry.py',
)
# Ids of contents as git prints them.
_BLOBS = {
  'saxml/server/pax/lm/params/gptj.py': (
    '5a3544889baa8c22497ded895775260e791036d7'
  ),
  'saxml/server/pax/lm/params/template.py': (
    'e6fec9ccf6fd6b50d3ed36c63dade890aafa25d1'
  ),
  'saxml/server/pax/quantization.py': (
    '87f86dad890ff47c60f78bef41397578cba490b2'
  ),
  'saxml/server/servable_model_registry.py': (
    'fcde30111a50d67998cff85c807a0f46b65a9175'
  ),
  'requirements.txt': '1439a934307baf0a286b4484b4df0936f0c3a07a',
}
_PRAXIS = 'praxis @ git+https://github.com/tpu-inference/praxis@'
_HEAD = 'ffdd9b72b40a59f1d4beae3079da811ec4838b22'
_OTHER = 'f684999636082fd12b152e84551e9fddb2496f61'
_REQUIREMENTS = f"""\
fiddle @ git+https://github.com/google/fiddle
    # via praxis, see git+https://github.com/google/praxis
flax @ git+https://github.com/google/flax
praxis @ git+https://github.com/google/praxis@{_OTHER}
flaxformer @ git+ssh://git@github.com/google/flaxformer@{_OTHER}#egg=flaxformer
"""
_ARCHIVE = """\
http_archive(
    name = "{name}",
    urls = ["https://github.com/{repository}/archive/{archive}.tar.gz"],
{more})
"""


class TreeTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.temp = pathlib.Path(self.create_tempdir().full_path)
    self.upstream = self.temp / 'upstream'
    self.out = self.temp / 'some' / 'where'
    for path in _NEEDED:
      file = self.upstream / path
      file.parent.mkdir(parents=True, exist_ok=True)
      if (_STAND_IN / path).exists():
        shutil.copyfile(_STAND_IN / path, file)
      else:
        file.touch()

  def _lay(self) -> None:
    """Records the stand-in and copies it."""
    tree.lay(self.upstream, self.out, self._record())

  def _record(self) -> pathlib.Path:
    path = self.temp / 'stand-in.tree'
    lines = [f'# {_OTHER}']
    for file in sorted(self.upstream.rglob('*')):
      if file.is_file():
        mode = '100755' if os.access(file, os.X_OK) else '100644'
        blob = tree.blob_id(file.read_bytes())
        lines.append(f'{mode} blob {blob}\t{file.relative_to(self.upstream)}')
    path.write_text('\n'.join(lines))
    return path

  def _write(self, path: str, text: str) -> None:
    (self.upstream / path).write_text(text)

  def _requirements(self) -> str:
    self._lay()
    return (self.out / 'requirements.txt').read_text()

  def test_params_are_registered_in_the_tree(self):
    self._lay()
    path = [str(self.out), *filter(None, sys.path)]
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
    self._lay()
    for path in tree.FILES:
      if path.endswith('.py'):
        package = (
          'saxml_ext' if path.startswith('saxml_ext') else 'saxml/gptj_overlay'
        )
        source = os.path.relpath(path, package)
        build = (self.out / package / 'BUILD').read_text()
        self.assertIn(f'"{source}"', build)

  def test_requirements_from_a_newest_commit_are_pinned(self):
    self._write('requirements.txt', _REQUIREMENTS)
    lines = self._requirements().splitlines()
    self.assertEqual(lines[0], 'fiddle==0.3.0')
    self.assertEqual(lines[2], 'flax==0.8.1')
    kept = _REQUIREMENTS.splitlines()
    self.assertEqual([lines[1], *lines[3:]], [kept[1], *kept[3:]])

  def test_branch_of_praxis_is_pinned(self):
    self._write('requirements.txt', f'{_PRAXIS}mlperf4.0\n')
    self.assertEqual(self._requirements(), f'{_PRAXIS}{_HEAD}\n')

  def test_requirements_with_a_version_are_kept(self):
    text = 'fiddle==0.2.11\nflax==0.7.4\n'
    self._write('requirements.txt', text)
    self.assertEqual(self._requirements(), text)

  @parameterized.parameters(
    'x @ git+https://github.com/a/x',
    'x @ git+https://github.com/a/x@main',
    'x @ git+https://github.com/a/x@mlperf4.0  # via y',
    'x@git+https://github.com/a/x@v1.0',
    'x @ git+https://github.com/a/x@f684999',
    f'x @ git+https://github.com/a/x@{_OTHER}0',
    f'x @ git+https://github.com/a/{_OTHER}@main',
    f'x @ git+https://github.com/a/x#{_OTHER}',
    '-e git+ssh://git@github.com/a/x@main#egg=x',
    'git+file:///srv/x@dev',
    'x @ https://github.com/a/x/archive/refs/heads/main.zip',
    'x @ https://api.github.com/repos/a/x/tarball/main',
  )
  def test_moving_requirement_is_refused(self, requirement):
    self._write('requirements.txt', f'a==1\n{requirement}\n')
    with self.assertRaisesRegex(
      ValueError,
      '^requirements.txt refers to .*/a/|^requirements.txt refers to git.file',
    ):
      self._lay()
    self.assertFalse(self.out.exists())

  def test_archives_of_tags_are_pinned(self):
    self._write(
      'WORKSPACE',
      _ARCHIVE.format(
        name='pybind11',
        repository='pybind/pybind11',
        archive='v2.10.1',
        more='    strip_prefix = "pybind11-2.10.1",\n',
      ),
    )
    self._lay()
    text = (self.out / 'WORKSPACE').read_text()
    commit = '80dc998efced8ceb2be59756668a7e90e8bef917'
    self.assertIn(f'pybind/pybind11/archive/{commit}.tar.gz"', text)
    self.assertIn(f'"pybind11-{commit}"', text)

  @parameterized.parameters('v1.0', 'refs/heads/main')
  def test_archives_have_a_commit_or_checksum(self, reference):
    names = {'name': 'x', 'repository': 'a/x'}
    fixed = _ARCHIVE.format(archive=_OTHER, more='', **names)
    moving = _ARCHIVE.format(archive=reference, more='', **names)
    checked = _ARCHIVE.format(
      archive=reference, more='    sha256 = "00",\n', **names
    )
    self._write('WORKSPACE', fixed + checked + moving + fixed)
    with self.assertRaisesRegex(ValueError, f'a/x/archive/{reference}.tar.gz,'):
      self._lay()
    self._write('WORKSPACE', fixed + checked + fixed)
    self._lay()

  def test_other_lists_of_requirements_are_left_out(self):
    self._write('requirements.in', 'praxis @ git+https://x/praxis')
    self._write('requirements-cuda.txt', 'praxis @ git+https://x/praxis')
    self._lay()
    self.assertEqual(
      [path.name for path in self.out.glob('requirements*')],
      ['requirements.txt'],
    )

  def test_tree_names_the_bazel_of_upstream(self):
    self._lay()
    self.assertEqual((self.out / '.bazelversion').read_text(), '6.4.0\n')

  def test_sources_parse_with_the_python_of_upstream(self):
    for path, source in tree.FILES.items():
      if path.endswith('.py'):
        with open(pathlib.Path(tree.__file__).parents[2] / source) as file:
          ast.parse(file.read(), path, feature_version=(3, 10))

  def test_copies_recorded_files_only(self):
    tool = self.upstream / 'saxml' / 'tool.sh'
    tool.touch(0o755)
    record = self._record()
    (self.upstream / '.git').mkdir()
    (self.upstream / 'bazel-out').symlink_to(self.temp)
    (self.upstream / 'saxml' / 'notes').touch()
    tree.lay(self.upstream, self.out, record)
    copied = {p for p in self.out.rglob('*') if p.is_file()}
    self.assertEqual(
      {str(path.relative_to(self.out)) for path in copied},
      {*_NEEDED, *tree.FILES, '.bazelversion', 'saxml/tool.sh'},
    )
    self.assertTrue(os.access(self.out / 'saxml' / 'tool.sh', os.X_OK))

  @parameterized.parameters(*_NEEDED)
  def test_refuses_another_tree(self, path):
    record = self._record()
    for text in ('# Another.\n', None):
      if text is None:
        (self.upstream / path).unlink()
      else:
        self._write(path, text)
      with self.assertRaisesRegex(
        ValueError,
        f'upstream is not stand-in of Saxml at commit {_OTHER}. 1 of 9 files'
        f' are missing or differ: {path}. Check out that commit.',
      ):
        tree.lay(self.upstream, self.out, record)
    self.assertFalse(self.out.exists())

  def test_default_is_the_pinned_commit(self):
    with self.assertRaisesRegex(
      ValueError,
      'is not mlperf4.0 of Saxml at commit 8d3aa0791964605182055c210557cee30',
    ):
      tree.lay(self.upstream, self.out)

  def test_refuses_to_overwrite(self):
    self._lay()
    with self.assertRaisesRegex(FileExistsError, 'where exists. Move it'):
      self._lay()
    with self.assertRaisesRegex(FileExistsError, 'already has saxml/gptj_over'):
      tree.lay(self.out, self.temp / 'again')


class RecordTest(parameterized.TestCase):
  def test_has_the_ids_of_the_branch(self):
    lines = tree.MLPERF4_0.read_text().splitlines()
    for path, blob in _BLOBS.items():
      self.assertIn(f'100644 blob {blob}\t{path}', lines)

  def test_ids_match_git(self):
    self.assertEqual(
      tree.blob_id(b''), 'e69de29bb2d1d6434b8b29ae775ad8c2e48c5391'
    )

  @parameterized.parameters('mlperf4.0', 'r1.2.0')
  def test_tree_has_the_commit_that_bazel_fetches(self, release):
    record = tree.MLPERF4_0.with_name(f'{release}.tree').read_text()
    (commit,) = re.match('# ([0-9a-f]{40})\n', record).groups()
    rules = pathlib.Path(tree.__file__).with_name('saxml.bzl').read_text()
    self.assertIn(f'name = "{release}",\n        commit = "{commit}"', rules)
    for path in _NEEDED:
      self.assertIn(f'\t{path}\n', record)


if __name__ == '__main__':
  absltest.main()
