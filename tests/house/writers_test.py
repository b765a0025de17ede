"""Tests that only saxml_ext/common/files.py replaces files."""

import ast

from absl.testing import absltest

from tests.house import tree

_CALLS = {
  'os': {'link', 'rename', 'renames', 'replace'},
  'shutil': {'move'},
  'tempfile': {'mkstemp'},
}
# These other modules rename files. The values give the reason why they do not
# use `files.replacing` or `files.new_directory`.
_EXCEPTIONS = {
  'benchmarks/gpu.py': 'It runs where only JAX is installed.',
  'benchmarks/random_model.py': 'An interrupted run leaves a directory that'
  ' the next run completes.',
  'harness/models/pax_model.py': 'An interrupted run leaves a checkpoint that'
  ' the next run completes.',
  'harness/results/store.py': 'It moves a finished directory aside.',
  'saxml_ext/admin/leadership/shared_dir.py': 'A later leader must be able to'
  ' stop the rename.',
  'saxml_ext/common/files.py': 'It is the one writer.',
  'saxml_ext/pax/checkpoint_writer.py': 'An interrupted run leaves a checkpoint'
  ' that the next run completes.',
}


def _replaces(call: ast.Call) -> bool:
  """Returns True if a call renames a file, or creates one to be renamed."""
  function = call.func
  if not isinstance(function, ast.Attribute):
    return False
  name = function.attr
  module = function.value.id if isinstance(function.value, ast.Name) else ''
  if module in _CALLS:
    kept = any(k.arg in ('delete', 'delete_on_close') for k in call.keywords)
    return name in _CALLS[module] or (name == 'NamedTemporaryFile' and kept)
  if module in ('copy', 'dataclasses'):
    return False
  # The methods are those of pathlib.Path. Those of strings and dates take other
  # arguments, and msgspec's take the fields to change.
  if name not in ('rename', 'replace'):
    return False
  return len(call.args) == 1 and not call.keywords


class WritersTest(absltest.TestCase):
  def test_only_files_py_replaces_files(self):
    writers = {}
    for path in tree.files('*.py'):
      if 'testing' in path.parts or path.name.endswith('_test.py'):
        continue
      parsed = ast.parse((tree.ROOT / path).read_text(encoding='utf-8'))
      lines = [
        node.lineno
        for node in ast.walk(parsed)
        if isinstance(node, ast.Call) and _replaces(node)
      ]
      if lines:
        writers[str(path)] = lines
    self.assertEqual(
      sorted(writers),
      sorted(_EXCEPTIONS),
      f'Write files with saxml_ext/common/files.py; found: {writers}',
    )

  def test_calls_that_replace_files_are_recognized(self):
    for code, expected in (
      ('os.replace(a, b)', True),
      ('os.rename(a, b)', True),
      ('path.with_suffix("").replace(b)', True),
      ('path.rename(b)', True),
      ('shutil.move(a, b)', True),
      ('tempfile.mkstemp()', True),
      ('tempfile.NamedTemporaryFile(delete=False)', True),
      ('tempfile.NamedTemporaryFile()', False),
      ('text.replace("a", "b")', False),
      ('when.replace(microsecond=0)', False),
      ('dataclasses.replace(value)', False),
      ('replace(a)', False),
    ):
      (statement,) = ast.parse(code).body
      with self.subTest(code):
        self.assertEqual(_replaces(statement.value), expected)


if __name__ == '__main__':
  absltest.main()
