"""Tests the sizes of folders and files, and the imports between rooms."""

import collections
import pathlib
import re

from absl.testing import absltest

from tests.house import imports
from tests.house import tree

_MODULES_OF_A_FOLDER = 30
_LINES_OF_A_MODULE = 400
_LINES_OF_A_BUILD_FILE = 400
# The limit of module names that several files of a top-level folder share.
_SHARED_NAMES = 20

# Each room may import the rooms in its row. Code that joins unrelated rooms
# belongs to tests/, which may import everything.
_BELOW = {
  'sax.py': ('saxml_ext/client',),
  'saxml_ext/protobuf': (),
  'saxml_ext/common': ('saxml_ext/protobuf',),
  'saxml_ext/engine': (),
  'saxml_ext/aot': (
    'saxml_ext/common',
    'saxml_ext/engine',
    'saxml_ext/params',
  ),
  'saxml_ext/evaluation': ('saxml_ext/common',),
  'saxml_ext/pax': ('saxml_ext/common', 'saxml_ext/engine'),
  'saxml_ext/families': ('saxml_ext/engine', 'saxml_ext/pax'),
  'saxml_ext/params': (
    'saxml_ext/common',
    'saxml_ext/engine',
    'saxml_ext/families',
    'saxml_ext/pax',
  ),
  'saxml_ext/admin': (
    'saxml_ext/common',
    'saxml_ext/params',
    'saxml_ext/protobuf',
  ),
  'saxml_ext/client': (
    'saxml_ext/common',
    'saxml_ext/params',
    'saxml_ext/protobuf',
  ),
  'saxml_ext/http': (
    'saxml_ext/client',
    'saxml_ext/common',
    'saxml_ext/protobuf',
  ),
  'saxml_ext/groups': (
    'saxml_ext/common',
    'saxml_ext/engine',
    'saxml_ext/protobuf',
  ),
  'saxml_ext/server': (
    'saxml_ext/admin',
    'saxml_ext/aot',
    'saxml_ext/common',
    'saxml_ext/engine',
    'saxml_ext/families',
    'saxml_ext/groups',
    'saxml_ext/params',
    'saxml_ext/pax',
    'saxml_ext/protobuf',
  ),
  'converters': (
    'saxml_ext/common',
    'saxml_ext/engine',
    'saxml_ext/evaluation',
    'saxml_ext/families',
    'saxml_ext/pax',
  ),
  'serve': (
    'converters',
    'saxml_ext/client',
    'saxml_ext/common',
    'saxml_ext/families',
    'saxml_ext/http',
    'saxml_ext/params',
    'saxml_ext/pax',
    'saxml_ext/protobuf',
  ),
  'harness': (
    'converters',
    'serve',
    'saxml_ext/client',
    'saxml_ext/common',
    'saxml_ext/engine',
    'saxml_ext/evaluation',
    'saxml_ext/params',
    'saxml_ext/protobuf',
    'saxml_ext/server',
  ),
  'bundled': (
    'converters',
    'harness',
    'saxml_ext/common',
    'saxml_ext/evaluation',
    'saxml_ext/families',
    'saxml_ext/params',
  ),
  'benchmarks': (
    'converters',
    'harness',
    'saxml_ext/aot',
    'saxml_ext/common',
    'saxml_ext/engine',
    'saxml_ext/evaluation',
    'saxml_ext/families',
    'saxml_ext/params',
    'saxml_ext/pax',
    'saxml_ext/protobuf',
    'saxml_ext/server',
    'serve',
  ),
}


def _lines(path: pathlib.Path) -> int:
  return len((tree.ROOT / path).read_text(encoding='utf-8').splitlines())


class LayoutTest(absltest.TestCase):
  def test_folders_are_not_too_full(self):
    modules = collections.Counter(
      str(path.parent)
      for path in tree.files('*.py')
      if tree.is_production(path)
    )
    full = {k: n for k, n in modules.items() if n > _MODULES_OF_A_FOLDER}
    self.assertEqual(full, {}, f'limit: {_MODULES_OF_A_FOLDER} modules')

  def test_files_are_not_too_long(self):
    for pattern, limit in (
      ('*.py', _LINES_OF_A_MODULE),
      ('BUILD', _LINES_OF_A_BUILD_FILE),
    ):
      paths = tree.files(pattern)
      self.assertNotEmpty(paths)
      long = {str(path): n for path in paths if (n := _lines(path)) > limit}
      self.assertEqual(long, {}, f'limit for {pattern}: {limit} lines')

  def test_programs_have_what_all_have(self):
    # With absl's run, a program has neither --version nor a complete --help.
    starting = [
      str(path)
      for path in tree.files('*.py')
      if re.search(r'\bapp\.run\(\w', (tree.ROOT / path).read_text('utf-8'))
    ]
    self.assertEqual(starting, ['saxml_ext/common/program.py'])

  def test_no_import_goes_up(self):
    wrong = []
    for path in tree.files('*.py'):
      room = imports.room(path)
      if room not in _BELOW:
        continue
      for other in imports.imported(path):
        into = imports.room(other)
        if into != room and into not in _BELOW[room]:
          wrong.append(f'{path} imports {other}')
    self.assertEqual(wrong, [])

  def test_every_room_is_in_the_table(self):
    rooms = {imports.room(path) for path in tree.files('*.py')}
    self.assertEqual(
      rooms - {'tests', 'deploy', 'third_party'},
      set(_BELOW),
    )

  def test_modules_import_no_ring(self):
    graph = {
      str(path): {str(other) for other in imports.imported(path)}
      for path in tree.files('*.py')
    }
    self.assertEqual(imports.cycle(graph), [])

  def test_folders_are_levels(self):
    """Checks that the parts of a folder import each other in one direction.

    The parts are its modules and subfolders.
    """
    production = [p for p in tree.files('*.py') if tree.is_production(p)]
    graphs: dict[str, dict[str, set[str]]] = collections.defaultdict(dict)
    for path in production:
      for other in imports.imported(path):
        for folder in path.parents:
          if folder in other.parents:
            depth = len(folder.parts)
            node, into = path.parts[depth], other.parts[depth]
            if node != into:
              graphs[str(folder)].setdefault(node, set()).add(into)
            break
    self.assertNotEmpty(graphs)
    rings = {f: imports.cycle(graph) for f, graph in graphs.items()}
    self.assertEqual({f: ring for f, ring in rings.items() if ring}, {})

  def test_names_are_seldom_shared(self):
    """Checks that few files share a name, because messages and traces show it.

    The bundled models are not part of the product and may share names.
    """
    paths = collections.defaultdict(list)
    for path in tree.files('*.py'):
      if tree.is_production(path) and 'bundled' not in path.parts:
        paths[path.parts[0], path.name].append(str(path))
    shared = {k: v for k, v in paths.items() if len(v) > 1}
    self.assertLessEqual(len(shared), _SHARED_NAMES, shared)

  def test_a_ring_would_be_found(self):
    graph = {'a': {'b'}, 'b': {'c', 'd'}, 'c': set(), 'd': {'b'}}
    self.assertEqual(imports.cycle(graph), ['b', 'd', 'b'])


if __name__ == '__main__':
  absltest.main()
