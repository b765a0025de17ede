"""Starts a program of Bazel 4 in the layout of Bazel 8 with rules_python.

./bazelw build //harness:offline
./bazelw run //tests/bazel8:run -- bazel-bin/harness/offline --help
"""

import os
import pathlib
import subprocess
import sys
import tempfile

from saxml_ext.common import user_path
from tests.bazel8 import runfiles_layout

_BIN = 'bazel-bin/'


def main(argv: list[str]) -> int:
  if len(argv) < 2 or not argv[1].startswith(_BIN):
    print(f'usage: {_BIN}PROGRAM [ARGUMENT...]', file=sys.stderr)
    return 2
  built = pathlib.Path(user_path.resolve(argv[1]))
  with tempfile.TemporaryDirectory(prefix='bazel8_') as out:
    launcher = runfiles_layout.lay_out(
      built.with_name(built.name + '.runfiles'),
      argv[1].removeprefix(_BIN),
      pathlib.Path(out),
    )
    ours = (
      'RUNFILES_DIR',
      'PYTHONPATH',
      'PYTHON_RUNFILES',
      'RUNFILES_MANIFEST_FILE',
    )
    env = {k: v for k, v in os.environ.items() if k not in ours}
    # `bazel run` and `bazel test` set this variable too.
    env.setdefault('BUILD_WORKING_DIRECTORY', os.getcwd())
    runfiles = launcher.with_name(launcher.name + '.runfiles') / '_main'
    return subprocess.run(
      [launcher, *argv[2:]], cwd=runfiles, env=env, check=False
    ).returncode


if __name__ == '__main__':
  sys.exit(main(sys.argv))
