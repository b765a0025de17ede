"""Finds names that do not describe what they hold or do.

  bazel run //tests/house:identifiers -- saxml_ext/engine

Prints each definition that breaks a rule, unless its line has a comment with a
reason to keep the name, such as `# keep: docs/pax.md names it`:

- A variable, argument, attribute, function or class is not named with a
  participle or pronoun such as `found` or `each`. A name says what the value
  is: `candidates`, `request`.
- No function is called `of` or `of_x`. A constructor is called `from_x`.
- The name of a test describes behavior in the present tense, such as
  `test_disconnected_client_frees_its_slot`. It begins with no clause word such
  as `who`, and contains no word such as `nobody` or `told`.
"""

import ast
from collections.abc import Iterator, Sequence

from saxml_ext.common import program
from tests.house import problems

_WORDS = frozenset(
  'asked each found gone heard holding keeping living news nobody outlook place '
  'places posted reach said told wanted whoever whom whose'.split()
)
_CLAUSES = frozenset('how of what where whether which who whom whose'.split())
_NOT_IN_TESTS = frozenset(
  'bears besides forget forgets nobody said says told vain whoever whom'.split()
)


def _defined(node: ast.AST) -> str | None:
  """Returns the name that a node defines, if any."""
  match node:
    case ast.Name(id=name, ctx=ast.Store()):
      return name
    case ast.Attribute(attr=name, ctx=ast.Store()):
      return name
    case ast.arg(arg=name) | ast.FunctionDef(name=name):
      return name
    case ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
      return name
  return None


def check(module: ast.Module) -> Iterator[tuple[int, str]]:
  """Yields the lines that define names against a rule, and the reasons."""
  for node in ast.walk(module):
    name = _defined(node)
    if name is None or not isinstance(node, ast.expr | ast.stmt | ast.arg):
      continue
    words = name.strip('_').lower().split('_')
    function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    reason = None
    if words[0] in _WORDS and len(words) == 1:
      reason = 'does not describe a value or an action'
    elif function and words[0] == 'of':
      reason = 'begins with "of"'
    elif function and words[0] == 'test' and len(words) > 1:
      if words[1] in _CLAUSES:
        reason = f'begins with the clause word {words[1]!r}'
      elif odd := sorted(_NOT_IN_TESTS.intersection(words)):
        reason = f'contains {odd[0]!r}'
    if reason:
      yield node.lineno, f'{name!r} {reason}'


def main(argv: Sequence[str]) -> int:
  return problems.report(check, argv)


if __name__ == '__main__':
  program.run(main, takes_words=True)
