"""Lists figures of the documentation that are older than 50 commits.

  bazel run //tests/house:old_figures

A page has a hidden comment beside its figures. The comment gives the commit at
which they were measured, and the folders or files that they depend on:

  <!-- measured: 257b2e4 saxml_ext/engine benchmarks -->

Figures become old with the commits that change those folders. The program
prints the page, the line and the number of such commits for each comment. The
figures to measure again come first.
"""

from collections.abc import Iterator, Sequence
import os
import pathlib
import re
import subprocess
from typing import NamedTuple

_MARK = re.compile(r'^<!--\s*measured:\s*(.*?)\s*-->', re.DOTALL | re.MULTILINE)
_COMMIT = re.compile(r'[0-9a-f]{7,40}')
# Figures are old after this many changes of the measured files.
_MOST = 50


class Figure(NamedTuple):
  """Figures on a page, and the files that they depend on.

  Attributes:
    page: The page, relative to the root of the repository.
    line: The line of the comment.
    commit: The commit at which the figures were measured.
    paths: The folders and files that they depend on.
  """

  page: str
  line: int
  commit: str
  paths: tuple[str, ...]


def figures(root: pathlib.Path) -> Iterator[Figure]:
  """Yields the marked figures of README.md and docs/.

  Raises:
    ValueError: A comment names no commit, or a path that does not exist.
  """
  for page in [root / 'README.md', *sorted((root / 'docs').glob('*.md'))]:
    text = page.read_text(encoding='utf-8') if page.exists() else ''
    for mark in _MARK.finditer(text):
      line = 1 + text.count('\n', 0, mark.start())
      where = f'{page.relative_to(root)}:{line}'
      commit, *paths = mark[1].split() or ['']
      if not _COMMIT.fullmatch(commit) or not paths:
        raise ValueError(
          f'{where} has "{mark[0]}". Write the commit and what was measured,'
          ' such as <!-- measured: 257b2e4 saxml_ext/engine -->.'
        )
      for path in paths:
        if not (root / path).exists():
          raise ValueError(
            f'{where} names {path}, which does not exist. Name the folder that'
            ' holds the code now.'
          )
      yield Figure(str(page.relative_to(root)), line, commit, tuple(paths))


def age(root: pathlib.Path, figure: Figure) -> int:
  """Returns the number of commits since then that changed the measured files.

  Raises:
    ValueError: The repository has no such commit.
  """
  done = subprocess.run(
    ['git', 'rev-list', '--count', f'{figure.commit}..HEAD', '--']
    + list(figure.paths),
    cwd=root,
    capture_output=True,
    text=True,
    check=False,
  )
  if done.returncode:
    raise ValueError(
      f'{figure.page}:{figure.line} names commit {figure.commit}, which git'
      f' does not find: {done.stderr.strip()}'
    )
  return int(done.stdout)


def report(root: pathlib.Path) -> Iterator[str]:
  """Yields a line for each figure, oldest first, and the number of old ones."""
  aged = sorted(
    ((age(root, figure), figure) for figure in figures(root)), reverse=True
  )
  for commits, figure in aged:
    note = '  OLD' if commits > _MOST else ''
    yield (
      f'{commits:5} commits  {figure.page}:{figure.line}'
      f'  {figure.commit} {" ".join(figure.paths)}{note}'
    )
  old = sum(commits > _MOST for commits, _ in aged)
  yield (
    f'{old} of {len(aged)} marked figures are older than {_MOST} commits of'
    ' what they measure.'
  )


def main(argv: Sequence[str] = ()) -> None:
  del argv
  for line in report(pathlib.Path(os.environ['BUILD_WORKSPACE_DIRECTORY'])):
    print(line)


if __name__ == '__main__':
  main()
