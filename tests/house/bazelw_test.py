"""Tests of ./bazelw and .ci/run on machines without some needed programs.

Stand-ins on PATH replace the programs that install the missing ones.
"""

import hashlib
import io
import os
import pathlib
import re
import shutil
import subprocess
import tarfile

from absl.testing import absltest

from tests.house import tree

_TOOLS = (
  *('basename', 'bash', 'cat', 'chmod', 'cp', 'cut', 'dirname', 'env', 'find'),
  *(
    'grep',
    'gzip',
    'id',
    'mkdir',
    'mktemp',
    'mv',
    'rm',
    'sed',
    'sh',
    'sha512sum',
    'tar',
  ),
  *('tee', 'touch', 'tr', 'uname'),
)
# Each stand-in writes a line to $LOG. Installed files come from $STORE.
_LOGGED = '#!/bin/sh\necho "$(basename "$0") $*" >>"$LOG"\n'
_BAZEL = """
if [ "$1" = --version ]; then echo 'bazel 4.2.3'; exit; fi
[ "$PIP_REQUIRE_VIRTUALENV$PIP_USER" = 00 ] || exit 1
[ -w "${HOME:-/}" ] || [ "$PIP_NO_CACHE_DIR" = 1 ] || exit 1
echo "$0 in $PWD with $(command -v python3.11): $*"
"""
_PYTHON = """
case "$1 $2 $3" in
  "-c "*) exit {code} ;;
  "-m pip install")
    [ "$PIP_REQUIRE_VIRTUALENV$PIP_USER" = 00 ] || exit 1
    while [ "$1" != --target ]; do shift; done
    mkdir -p "$2/bin" && cp "$STORE/uv" "$2/bin/uv" ;;
esac
"""
_UV = """
bin=$4/cpython-3.11.9-linux-x86_64-gnu/bin
mkdir -p "$bin" && cp "$STORE/python3.11" "$bin/python3.11"
"""
_SUDO = """
[ "$1" != --non-interactive ] || shift
exec "$@"
"""
# $OFFERED lists the offered packages. Another program holds dpkg's lock.
_APT_GET = """
if [ "$*" = '-qq update' ]; then touch "$BIN/refreshed"; exit; fi
[ "$2 $3 $4" = '--option DPkg::Lock::Timeout=600 install' ] || exit 100
shift 6
[ -e "$BIN/refreshed" ] || exit 100
for package in "$@"; do
  case " $OFFERED " in *" $package "*) ;; *) exit 100 ;; esac
done
for package in "$@"; do
  name=${package%-bootstrap}
  [ ! -e "$STORE/$name" ] || cp "$STORE/$name" "$BIN/$name"
done
"""
# It knows no package before `apt-get update`, as in a new container. After the
# candidate, it prints a list of versions that does not fit into a pipe. A
# reader that closes the pipe early kills it. It prints in the user's language.
_APT_CACHE = """
[ -e "$BIN/refreshed" ] || exit 0
[ "${LC_ALL:-}" = C ] && word=Candidate || word=Installationskandidat
printf '  Installed: (none)\\n  %s: %s\\n%999999s\\n' $word "$CANDIDATE" .
"""
_NPM = 'cp "$STORE/bazelisk.tgz" . && echo bazelisk.tgz\n'


def _archive() -> bytes:
  """Returns an npm package with a Bazelisk for each machine."""
  file = io.BytesIO()
  with tarfile.open(fileobj=file, mode='w:gz') as archive:
    for machine in ('linux_amd64', 'linux_arm64'):
      data = (_LOGGED + _BAZEL).encode()
      info = tarfile.TarInfo(f'package/bazelisk-{machine}')
      info.size = len(data)
      archive.addfile(info, io.BytesIO(data))
  return file.getvalue()


class BazelwTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._root = pathlib.Path(self.create_tempdir().full_path)
    self._bin, self._store, self._workspace = (
      self._root / name for name in ('bin', 'store', 'workspace')
    )
    for folder in (self._bin, self._store, self._workspace):
      folder.mkdir()
    for tool in _TOOLS:
      (self._bin / tool).symlink_to(shutil.which(tool))
    self._put('bin/gcc', '')
    for name, text in (
      ('bazel', _BAZEL),
      ('python3.11', _PYTHON.format(code=0)),
      ('uv', _UV),
    ):
      self._put(f'store/{name}', text)
    archive = _archive()
    (self._store / 'bazelisk.tgz').write_bytes(archive)
    script = (tree.ROOT / 'bazelw').read_text('utf-8')
    pinned = re.search(r'^readonly BAZELISK_SHA512=(\w{128})$', script, re.M)[1]
    self._pinned = pinned
    self._script(script.replace(pinned, hashlib.sha512(archive).hexdigest()))

  def _script(self, text: str) -> None:
    (self._workspace / 'bazelw').write_text(text, 'utf-8')

  def _put(self, path: str, text: str) -> None:
    (self._root / path).write_text(_LOGGED + text, 'utf-8')
    (self._root / path).chmod(0o755)

  def _with_apt(self) -> None:
    self._put('bin/apt-get', _APT_GET)
    self._put('bin/apt-cache', _APT_CACHE)
    self._put('bin/sudo', _SUDO)

  def _run(
    self, *command: str, **variables: str
  ) -> subprocess.CompletedProcess[str]:
    """Runs a command outside the workspace; by default, a test of all."""
    script, *arguments = command or ('bazelw', 'test', '//...')
    return subprocess.run(
      ['/bin/bash', str(self._workspace / script), *arguments],
      cwd=self._root,
      env={
        'BIN': str(self._bin),
        'GPTJ_SAX_CACHE': str(self._root / 'cache'),
        'LOG': str(self._root / 'log'),
        'PATH': str(self._bin),
        'STORE': str(self._store),
        **variables,
      },
      stdin=subprocess.DEVNULL,
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
      check=False,
    )

  def _log(self) -> str:
    return (self._root / 'log').read_text('utf-8')

  def _assert_ran(self, run, bazel: str, python: str) -> None:
    self.assertEqual(run.returncode, 0, run.stdout)
    self.assertEndsWith(
      run.stdout,
      f'{self._root}/{bazel} in {self._workspace} with {self._root}/{python}:'
      ' test //...\n',
    )

  def test_debian_12_has_both_packages(self):
    self._with_apt()
    packages = 'bazel-bootstrap python3.11 python3-pip'
    run = self._run(CANDIDATE='4.2.3+ds-9', OFFERED=packages)
    self._assert_ran(run, 'bin/bazel', 'bin/python3.11')

  def test_gcc_without_gpp_gets_it(self):
    self._with_apt()
    self._put('bin/bazel', _BAZEL)
    self._put('bin/python3.11', _PYTHON.format(code=0))
    self._put('bin/gcc', '[ -e "$BIN/g++" ]\n')
    self._put('store/g++', '')
    run = self._run(OFFERED='')
    self.assertEqual(run.returncode, 1)
    self.assertIn('gcc cannot compile C++. Install g++', run.stdout)
    self._assert_ran(self._run(OFFERED='g++'), 'bin/bazel', 'bin/python3.11')

  def test_ubuntu_22_has_another_bazel(self):
    self._with_apt()
    self._put('bin/npm', _NPM)
    packages = 'bazel-bootstrap python3.11 python3-pip'
    run = self._run(CANDIDATE='3.5.1', OFFERED=packages)
    self._assert_ran(run, 'cache/bazelw/bazelisk', 'bin/python3.11')
    self.assertNotIn('bazel-bootstrap\n', self._log().partition('install')[2])

  def test_debian_13_and_ubuntu_24_have_no_python_3_11(self):
    self._with_apt()
    self._put('bin/npm', _NPM)
    self._put('bin/python3', _PYTHON.format(code=1))
    run = self._run(CANDIDATE='(none)', OFFERED='python3-pip')
    python = (
      'cache/bazelw/python/cpython-3.11.9-linux-x86_64-gnu/bin/python3.11'
    )
    self._assert_ran(run, 'cache/bazelw/bazelisk', python)
    log = self._log()
    self.assertRegex(log, 'python3 -m pip install .*--require-hashes')
    # npm's own cache is in the home directory, which cannot be used.
    self.assertRegex(log, r'npm pack .*--cache /\S+ @bazel/bazelisk@[0-9.]+\n')
    # Later runs install nothing.
    (self._root / 'log').unlink()
    self._assert_ran(self._run(), 'cache/bazelw/bazelisk', python)
    self.assertNotRegex(self._log(), 'npm|uv|apt|install')

  def test_uv_on_path_is_used(self):
    shutil.copy(self._store / 'bazel', self._bin / 'bazel')
    shutil.copy(self._store / 'uv', self._bin / 'uv')
    python = (
      'cache/bazelw/python/cpython-3.11.9-linux-x86_64-gnu/bin/python3.11'
    )
    # The home directory is not writable.
    run = self._run(HOME='/dev/null/home')
    self._assert_ran(run, 'bin/bazel', python)

  def test_bazelisk_with_another_hash_is_refused(self):
    self._put('bin/npm', _NPM)
    self._script((tree.ROOT / 'bazelw').read_text('utf-8'))
    run = self._run()
    self.assertEqual(run.returncode, 1)
    self.assertIn(f'expected {self._pinned}', run.stdout)
    self.assertFalse(os.path.exists(self._root / 'cache/bazelw/bazelisk'))

  def test_programs_that_others_may_change_are_not_run(self):
    self._put('bin/npm', _NPM)
    planted = self._root / 'cache/bazelw/bazelisk'
    for path, mode in ((planted, 0o757), (planted.parent, 0o757)):
      planted.parent.mkdir(parents=True, exist_ok=True)
      planted.write_text('#!/bin/sh\necho planted\n', 'utf-8')
      planted.chmod(0o755)
      before = path.stat().st_mode
      path.chmod(mode)
      run = self._run()
      self.assertNotIn('planted', run.stdout.splitlines())
      self.assertIn(f'or may write {path}', run.stdout)
      path.chmod(before)

  def test_tmp_is_not_used_without_a_home(self):
    script = (tree.ROOT / 'bazelw').read_text('utf-8')
    self.assertNotIn('/tmp', script)
    self._put('bin/npm', 'exit 1')
    run = self._run(GPTJ_SAX_CACHE='')
    self.assertNotIn('/tmp/.cache', run.stdout)

  def test_unwritable_cache_names_the_variable(self):
    self._put('bin/npm', _NPM)
    run = self._run(GPTJ_SAX_CACHE='/dev/null/cache')
    self.assertEqual(run.returncode, 1)
    self.assertIn('/dev/null/cache/bazelw cannot be created', run.stdout)
    self.assertIn('Set $GPTJ_SAX_CACHE', run.stdout)

  def test_ci_installs_git_and_does_without_it(self):
    (self._workspace / '.ci').mkdir()
    shutil.copy(tree.ROOT / '.ci/run', self._workspace / '.ci/run')
    self._put('workspace/bazelw', 'echo "//a:b_test  PASSED in 0.1s"\n')
    self._with_apt()
    run = self._run('.ci/run', OFFERED='npm')
    self.assertEqual(run.returncode, 0, run.stdout)
    self.assertIn('git is not installed: submissions', run.stdout)
    self.assertNotIn('npm is not', run.stdout)
    self.assertEndsWith(run.stdout, '\n1 passed, 0 failed, 0 skipped\n')

  def test_bazelisk_and_bazelw_name_the_same_version(self):
    bazeliskrc = (tree.ROOT / '.bazeliskrc').read_text('utf-8')
    script = (tree.ROOT / 'bazelw').read_text('utf-8')
    version = re.search(r'^readonly VERSION=(.*)$', script, re.M)[1]
    self.assertEqual(bazeliskrc, f'USE_BAZEL_VERSION={version}\n')


if __name__ == '__main__':
  absltest.main()
