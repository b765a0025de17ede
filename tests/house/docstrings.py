"""Finds docstrings that do not begin as English technical docstrings do.

  bazel run //tests/house:docstrings -- saxml_ext/engine

Prints each docstring whose first word or whose entries break a rule:

- The docstring of a function begins with a verb in the third person, such as
  "Returns". That of a property may be a noun phrase.
- No docstring begins with a clause, such as "Whether there is room".
- The text of an entry is a noun phrase: "slots: The slots to prefill."
"""

import ast
from collections.abc import Iterator, Sequence
import re

from saxml_ext.common import program
from tests.house import problems

_CLAUSES = frozenset(
  'As For From How Of What Where Whether Which Who Whose Why'.split()
)
# These words end in s and are not verbs.
_NO_VERBS = frozenset('Its Names Texts This Thus Values'.split())
_VERB = re.compile(r'[A-Z][a-z]*s')
_ENTRY = re.compile(
  r'^ +[*\w, `]+: (as|how|of|see|that|the same|what|where|whether|which|who) ',
  re.MULTILINE,
)


def _is_property(node: ast.AST) -> bool:
  return any(
    'property' in ast.unparse(decorator)
    for decorator in getattr(node, 'decorator_list', ())
  )


def reasons(node: ast.AST, text: str) -> Iterator[str]:
  """Yields the rules that a docstring breaks.

  Args:
    node: The module, class or function of the docstring.
    text: The docstring.
  """
  first = text.split(maxsplit=1)[0].strip('.,:;')
  function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
  if first in _CLAUSES:
    yield f'begins with the clause word {first!r}'
  elif function and not _is_property(node):
    if not _VERB.fullmatch(first) or first in _NO_VERBS:
      yield f'begins with {first!r}, not with a verb such as "Returns"'
  if entry := _ENTRY.search(text):
    yield f'has the entry {entry[0].strip()!r}, which is no noun phrase'


def check(module: ast.Module) -> Iterator[tuple[int, str]]:
  """Yields the lines of docstrings that break a rule, and the reasons."""
  for node in ast.walk(module):
    if isinstance(
      node,
      ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef,
    ) and (text := ast.get_docstring(node)):
      for reason in reasons(node, text):
        yield node.body[0].lineno, reason


def main(argv: Sequence[str]) -> int:
  return problems.report(check, argv)


if __name__ == '__main__':
  program.run(main, takes_words=True)
