"""Tests the files that only newer Bazel reads: MODULE.bazel and extensions."""

import re

from absl.testing import absltest

from tests.house import starlark_program
from tests.house import tree

_HUBS = re.compile(r'@(pypi\w*)//')


def _extension(file: str) -> str:
  """Returns the path of an extension's file in this repository."""
  return file.removeprefix('//').replace(':', '/')


class ModulesTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.module = starlark_program.Program('MODULE.bazel')

  def test_bazel_without_what_rules_python_needs_is_refused(self):
    (module,) = self.module.arguments('module')
    self.assertEqual(module['bazel_compatibility'], ['>=8.5.0', '-9.0.0'])

  def test_bazelrc_names_the_launcher_that_needs_no_path_and_a_home(self):
    lines = (tree.ROOT / '.bazelrc').read_text('utf-8').splitlines()
    flag = '@rules_python//python/config_settings:bootstrap_impl'
    self.assertIn(f'build --{flag}=script', lines)
    self.assertIn('test --test_env=HOME=/dev/null/home', lines)

  def test_every_lock_has_a_hub(self):
    locks = {
      f'//third_party/python:{path.name}'
      for path in tree.files('*.lock')
      if path.parts[:2] == ('third_party', 'python')
    }
    parsed = self.module.arguments('pip.parse')
    self.assertEqual({values['requirements_lock'] for values in parsed}, locks)
    self.assertLen(parsed, len(locks))

  def test_packages_come_from_the_index_that_pip_would_use(self):
    for values in self.module.arguments('pip.parse'):
      self.assertEqual(values['envsubst'], ['PIP_INDEX_URL'])
      self.assertEqual(values['experimental_index_url'], '${PIP_INDEX_URL}')
    text = (tree.ROOT / 'MODULE.bazel').read_text('utf-8')
    self.assertNotIn('://', text, "A registry is each machine's own setting.")

  def test_every_hub_that_build_files_name_is_in_use(self):
    (used,) = [
      set(values['names'])
      for values in self.module.arguments('use_repo')
      if values['extension'] == 'pip'
    ]
    named = {
      hub
      for path in tree.files('BUILD')
      for hub in _HUBS.findall((tree.ROOT / path).read_text('utf-8'))
    }
    self.assertEqual(used, named)
    hubs = {values['hub_name'] for values in self.module.arguments('pip.parse')}
    (default,) = self.module.arguments('pip.default')
    self.assertEqual(used - {'pypi'}, hubs - {default['default_hub']})

  def test_our_extensions_declare_the_repositories_in_use(self):
    used = {
      values['extension']: set(values['names'])
      for values in self.module.arguments('use_repo')
    }
    ours = [
      extension
      for extension in self.module.arguments('use_extension')
      if extension['file'].startswith('//')
    ]
    self.assertLen(ours, 3)
    for extension in ours:
      with self.subTest(extension['name']):
        run = starlark_program.Program(
          _extension(extension['file']), f'{extension["name"]}(None)'
        )
        declared = {values['name'] for values in run.arguments('repository')}
        self.assertEqual(declared, used[extension['name']])

  def test_both_worlds_pin_the_same_locks(self):
    workspace = (tree.ROOT / 'WORKSPACE').read_text('utf-8')
    self.assertCountEqual(
      re.findall(r'lock = "(.*)"', workspace),
      [
        values['requirements_lock']
        for values in self.module.arguments('pip.parse')
      ],
    )


class NpmProgramTest(absltest.TestCase):
  def _fetch(self, present: list[str]) -> list[list[str]]:
    """Returns the commands that run when buildifier is fetched."""
    commands: list[list[str]] = []

    def execute(arguments: list[str]) -> str:
      commands.append(arguments)
      return 'Linux x86_64' if arguments[0] == 'uname' else 'archive.tgz'

    starlark_program.Program(
      'third_party/lint/npm_package.bzl',
      """
def which(name):
    return "/bin/" + name if is_present(name) else None

def run(arguments):
    return struct(return_code = 0, stdout = execute(arguments), stderr = "")

def ignore(*args, **kwargs):
    pass

def download(url, output, integrity):
    record("download", {"url": url, "integrity": integrity})

_npm_program_impl(struct(
    attr = struct(
        integrity = "sha512-A",
        package = "p",
        programs = {"Linux x86_64": "p-linux"},
        version = "1",
    ),
    download = download,
    execute = run,
    extract = ignore,
    file = ignore,
    path = lambda name: "/repository/" + name,
    symlink = ignore,
    which = which,
))
""",
      is_present=lambda name: name in present,
      execute=execute,
    )
    return commands

  def test_needs_neither_python_nor_a_home(self):
    commands = self._fetch(['npm', 'node'])
    self.assertEqual([c[0] for c in commands], ['/bin/npm', 'uname', 'chmod'])
    self.assertContainsSubset(['--cache', '/repository/cache'], commands[0])

  def test_does_without_npm(self):
    self.assertEqual(self._fetch([]), [])


class ManifestTest(absltest.TestCase):
  def test_leaves_out_what_rules_python_adds(self):
    ours = [
      'harness/offline.py',
      'saxml_ext/engine/kernels/libkernels.so',
      '../rules_python++pip+numpy/site-packages/numpy/x.py',
    ]
    added = [
      'harness/_offline_stage2_bootstrap.py',
      'harness/_offline.venv/lib/site-packages/_bazel_site_init.py',
    ]
    run = starlark_program.Program(
      'deploy/manifest.bzl',
      f"""
write_manifest(
    struct(
        actions = struct(
            declare_file = lambda name: name,
            write = lambda file, text: record(file, {{"text": text}}),
        ),
        label = struct(name = "wheel"),
    ),
    [struct(short_path = path, path = "bin") for path in {ours + added}],
)
""",
    )
    (written,) = run.arguments('wheel.manifest')
    self.assertEqual(
      written['text'], ''.join(f'{path}\tbin\n' for path in ours)
    )


if __name__ == '__main__':
  absltest.main()
