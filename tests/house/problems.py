"""Collects and prints the problems that a check of syntax trees finds."""

import ast
from collections.abc import Callable, Iterable, Sequence
import pathlib
import re
from typing import NamedTuple

from tests.house import tree


class Problem(NamedTuple):
  """A line that breaks a rule.

  Attributes:
    path: The file, relative to the root of the repository.
    line: The number of the line.
    reason: The rule that it breaks.
  """

  path: pathlib.Path
  line: int
  reason: str


# A comment on a line that may break a rule, with the reason.
KEPT = re.compile(r'# keep: \S')
# Returns the lines of a module that break a rule, and the reasons.
Check = Callable[[ast.Module], Iterable[tuple[int, str]]]


def find(check: Check, paths: Iterable[pathlib.Path]) -> list[Problem]:
  """Returns the problems in Python files, except on lines that are `KEPT`."""
  problems = []
  for path in paths:
    text = (tree.ROOT / path).read_text(encoding='utf-8')
    lines = text.splitlines()
    problems += [
      Problem(path, line, reason)
      for line, reason in check(ast.parse(text))
      if not KEPT.search(lines[line - 1])
    ]
  return problems


def report(check: Check, argv: Sequence[str]) -> int:
  """Prints the problems in the files and folders of the arguments.

  Args:
    check: The check.
    argv: The name of the program, and paths relative to the repository's root.
      Without paths, the program checks all files.

  Returns:
    The exit code of the program.
  """
  problems = find(
    check,
    [
      path
      for path in tree.files('*.py')
      if str(path).startswith(tuple(argv[1:] or ['']))
    ],
  )
  for path, line, reason in problems:
    print(f'{path}:{line}: {reason}')
  print(f'{len(problems)} problems')
  return 1 if problems else 0
