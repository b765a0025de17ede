"""Runs the commands of documentation pages in order.

    ./bazelw run //tests/docs:follow -- --page=docs/cell.md

The commands run in one shell in the root of the repository, as a reader would
type them. /tmp and the cache are replaced by fresh directories. The first
command that fails ends the run with exit code 1 and the location of the
command. Background programs of the pages are stopped at the end. If a page
needs programs that another page starts, name it after that page:
--page=docs/cell.md --page=docs/client.md.

With --short, only blocks below the comment `Short` run. Without --page, these
are the blocks of all pages, in about ten minutes.
"""

from collections.abc import Mapping
import os
import pathlib
import signal
import subprocess
import tempfile

from absl import app
from absl import flags

from saxml_ext.common import program
from tests.docs import script

_PAGE = flags.DEFINE_multi_string(
  'page', [], 'The path of a page from the root. May be repeated.'
)
_SHORT = flags.DEFINE_bool(
  'short', False, 'Run only blocks that are marked as short.'
)
_LIMIT = flags.DEFINE_float(
  'limit', 900.0, 'The timeout of the commands in seconds.'
)
_TEMPORARY = '/tmp/'
_STOP_SECONDS = 20.0
# The first line of a script, where a page has its title.
_PRELUDE = (
  'set -evo pipefail; shopt -s expand_aliases; '
  'trap \'echo "{page}:$LINENO: failed: $BASH_COMMAND" >&2\' ERR; '
)


def follow(
  pages: Mapping[str, str],
  directory: pathlib.Path,
  root: str,
  limit: float,
  short: bool = False,
) -> int:
  """Runs the commands of pages.

  Args:
    pages: The Markdown texts by page name.
    directory: The directory that replaces /tmp, which must exist.
    root: The directory where the commands run.
    limit: The time limit in seconds.
    short: True to run only blocks that are marked as short.

  Returns:
    The exit code of the shell, or 124 after the time limit.

  Raises:
    ValueError: A page has no command.
  """
  commands = []
  for number, (page, text) in enumerate(pages.items()):
    text = text.replace(_TEMPORARY, f'{directory}/')
    for name, content in script.files(text).items():
      (directory / name).write_text(content, encoding='utf-8')
    _, *lines = script.commands(text, short).split('\n')
    if not any(lines):
      raise ValueError(
        f'{page} has no command. Mark blocks of commands as bash or console.'
      )
    path = directory / f'page_{number}.sh'
    prelude = _PRELUDE.format(page=page) + script.BACKGROUND
    path.write_text('\n'.join([prelude, *lines]), encoding='utf-8')
    commands.append(f'source {path}')
  shell = subprocess.Popen(
    ['bash', '-c', '\n'.join(commands)],
    cwd=root,
    env=_environment()
    | {'TMPDIR': str(directory), 'GPTJ_SAX_CACHE': str(directory / 'cache')},
    stdin=subprocess.DEVNULL,
    start_new_session=True,
  )
  try:
    return shell.wait(limit)
  except subprocess.TimeoutExpired:
    print(f'The commands were stopped after {limit:g} s.')
    return 124
  finally:
    _stop(shell)


def _environment() -> dict[str, str]:
  """Returns a reader's environment, without variables that Bazel has set."""
  return {k: v for k, v in os.environ.items() if k != 'PYTHONPATH'}


def _stop(shell: subprocess.Popen) -> None:
  """Ends the shell and its background programs."""
  for number in (signal.SIGTERM, signal.SIGKILL):
    try:
      os.killpg(shell.pid, number)
    except ProcessLookupError:
      break  # No process is left.
    try:
      shell.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
      pass
  shell.wait()


def main(argv: list[str]) -> int:
  del argv
  root = os.environ.get('BUILD_WORKSPACE_DIRECTORY', os.getcwd())
  names = _PAGE.value
  if _SHORT.value and not names:
    names = sorted(
      f'docs/{p.name}' for p in pathlib.Path(root).glob('docs/*.md')
    )
  if not names:
    raise app.UsageError('Set pages, such as --page=docs/cell.md, or --short.')
  pages = {
    page: pathlib.Path(root, page).read_text(encoding='utf-8') for page in names
  }
  if _SHORT.value:
    pages = {n: text for n, text in pages.items() if script.is_short(text)}
  with tempfile.TemporaryDirectory() as directory:
    code = follow(
      pages, pathlib.Path(directory), root, _LIMIT.value, _SHORT.value
    )
  names = ', '.join(pages)
  print(f'{names}: {"followed to the end" if not code else "failed"}')
  return min(code, 1)


if __name__ == '__main__':
  program.run(main)
