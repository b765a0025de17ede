"""Tests that the bytes of a set do not depend on time or directory."""

import functools
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from absl.testing import absltest

from saxml_ext.aot import serialization
from saxml_ext.aot.testing import small_engine

_PROGRAM = 'saxml_ext.aot.testing.small_engine'
_ROOT = pathlib.Path(small_engine.__file__).parents[3]
# The program imports these packages.
_ROOMS = ('aot', 'common', 'engine')


def _compile(name: str, seed: int, cache: str = '') -> dict[str, bytes]:
  """Compiles a set with a copy of the sources, and returns its files."""
  root = pathlib.Path(tempfile.mkdtemp(dir=absltest.TEST_TMPDIR.value), name)
  for room in _ROOMS:
    shutil.copytree(
      _ROOT / 'saxml_ext' / room,
      root / 'saxml_ext' / room,
      ignore=shutil.ignore_patterns('__pycache__', '*_test.py'),
    )
  paths = [path for path in sys.path if path not in ('', str(_ROOT))]
  subprocess.run(
    [sys.executable, '-P', '-m', _PROGRAM, str(root / 'set')],
    env={
      **os.environ,
      'JAX_PLATFORMS': 'cpu',
      'PYTHONHASHSEED': str(seed),
      'JAX_COMPILATION_CACHE_DIR': cache,
      'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0',
      'PYTHONPATH': os.pathsep.join([str(root), *paths]),
    },
    check=True,
  )
  return {p.name: p.read_bytes() for p in (root / 'set').iterdir()}


@functools.cache
def _one_set() -> dict[str, bytes]:
  return _compile('one', seed=1)


class ReproducibleTest(absltest.TestCase):
  def test_sets_of_copies_in_two_directories_are_equal(self):
    one = _one_set()
    other = _compile('another/place', seed=2)
    self.assertCountEqual(one, other)
    for name in sorted(one):
      with self.subTest(name):
        self.assertEqual(one[name], other[name])
        self.assertNotIn(b'saxml_ext/', one[name])

  def test_cache_of_jax_is_not_used(self):
    cache = self.create_tempdir().full_path
    one, other = (_compile('one', 1, cache) for _ in range(2))
    self.assertEqual(one['decode_2.executable'], other['decode_2.executable'])

  def test_sorting_changes_only_the_order_of_object_files(self):
    executable = _one_set()['decode_2.executable']
    self.assertEqual(serialization.sort_object_files(executable), executable)
    self.assertEqual(
      sorted(serialization.sort_object_files(executable)), sorted(executable)
    )

  def test_bytes_of_another_layout_are_refused(self):
    for content in (
      b'',
      b'\x01',
      b'\x00\x0a\x7f',
      b'\x00\x12\x00',
      b'\x00\x0f',
    ):
      with self.subTest(content):
        with self.assertRaisesRegex(ValueError, 'the executable'):
          serialization.sort_object_files(content)


if __name__ == '__main__':
  absltest.main()
