"""Tests that each flag is defined in one place."""

import ast
import collections
from collections.abc import Iterable, Iterator, Mapping
import functools
import pathlib

from absl.testing import absltest

from tests.house import imports
from tests.house import tree

_MAIN = "if __name__ == '__main__':"


def defined(source: str) -> set[str]:
  """Returns the names of the flags that a module's code defines."""
  return {
    node.args[0].value
    for node in ast.walk(ast.parse(source))
    if isinstance(node, ast.Call)
    and isinstance(node.func, ast.Attribute)
    and node.func.attr.startswith('DEFINE_')
    # An alias of a flag has no value of its own.
    and node.func.attr != 'DEFINE_alias'
    and node.args
    and isinstance(node.args[0], ast.Constant)
  }


def problems(
  sources: Mapping[pathlib.Path, str],
  imported: Mapping[pathlib.Path, Iterable[pathlib.PurePath]],
) -> Iterator[str]:
  """Yields a sentence for each second definition of a flag.

  The libraries of a room define a flag once. A program does not define a flag
  that an imported library defines. Separate programs may share a name.

  Args:
    sources: The code of each module.
    imported: The modules that each module imports.
  """
  flags = {path: defined(source) for path, source in sources.items()}
  libraries = {path for path, text in sources.items() if _MAIN not in text}
  rooms: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
  for path in sorted(libraries):
    for name in flags[path]:
      rooms[imports.room(path), name].append(str(path))
  for (_, name), paths in sorted(rooms.items()):
    if len(paths) > 1:
      yield f'--{name} is defined in {" and ".join(paths)}: keep one of them'

  @functools.cache
  def reached(path: pathlib.Path) -> frozenset[pathlib.Path]:
    direct = {pathlib.Path(module) for module in imported[path]} & set(sources)
    return frozenset(direct).union(*map(reached, direct))

  for path in sorted(set(sources) - libraries):
    for other in sorted(reached(path) & libraries):
      for name in sorted(flags[path] & flags[other]):
        yield (
          f'--{name} of the program {path} is defined in {other} too, which it'
          ' imports: use that one'
        )


class FlagDefinitionsTest(absltest.TestCase):
  def test_a_flag_is_defined_in_one_place(self):
    modules = [path for path in tree.files('*.py') if tree.is_production(path)]
    sources = {
      path: (tree.ROOT / path).read_text(encoding='utf-8') for path in modules
    }
    conflicts = problems(
      sources, {path: imports.imported(path) for path in modules}
    )
    self.assertEqual(list(conflicts), [])

  def test_second_definitions_are_found(self):
    define = "flags.DEFINE_string('mode', None, '')\n"
    one, two, program, other = (
      pathlib.Path('harness', name)
      for name in ('one.py', 'two.py', 'program.py', 'other.py')
    )
    main = f'{_MAIN}\n  pass\n'
    sources = {one: define, two: '', program: define + main, other: main}
    free = dict.fromkeys(sources, ())
    self.assertEqual(list(problems(sources, free)), [])
    self.assertLen(list(problems(sources | {two: define}, free)), 1)
    [problem] = problems(sources, free | {program: [two], two: [one]})
    self.assertEqual(
      problem,
      '--mode of the program harness/program.py is defined in harness/one.py'
      ' too, which it imports: use that one',
    )
    alias = {two: "flags.DEFINE_alias('mode', 'modes')\n"}
    self.assertEqual(list(problems(sources | alias, free)), [])


if __name__ == '__main__':
  absltest.main()
