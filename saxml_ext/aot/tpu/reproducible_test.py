"""Tests that builds of a program set in two directories are identical.

The test downloads libtpu and compiles for minutes. Run it by hand when the
compiler, the engine's kernels or libtpu change.

  ./bazelw test //saxml_ext/aot/tpu:reproducible_test
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from absl.testing import absltest

from saxml_ext.aot.tpu import topologies

# These sizes reduce GPT-J to two layers that compile in seconds.
_SMALL = {
  'NUM_LAYERS': '2',
  'MODEL_DIMS': '512',
  'NUM_HEADS': '4',
  'DIMS_PER_HEAD': '128',
  'HIDDEN_DIMS': '1024',
  'VOCAB_SIZE': '1000',
  'EOS_ID': '999',
  'SOS_ID': '999',
  'INPUT_SEQ_LEN': '128',
  'BUCKET_KEYS': '[128]',
  'NUM_CACHE_SLOTS': '1',
}


class ReproducibleTest(absltest.TestCase):
  def test_sets_of_two_copies_of_the_sources_are_equal(self):
    # The builds differ in their paths, and in the order of Python's sets.
    one = _contents(self._build('a', seed=1))
    other = _contents(self._build('much/longer/and/elsewhere', seed=2))
    self.assertIn('manifest.json', one)
    self.assertIn('decode_1.executable', one)
    self.assertEqual(one.keys(), other.keys())
    different = [name for name in one if one[name] != other[name]]
    self.assertEqual(different, [])
    sources = [n for n, content in one.items() if b'.py' in content]
    self.assertEqual(sources, [], 'these name source files')

  def _build(self, where: str, seed: int) -> pathlib.Path:
    """Builds a set from a copy of the sources, and returns its directory."""
    root = pathlib.Path(tempfile.mkdtemp(dir=absltest.TEST_TMPDIR.value))
    copy = root / where
    sources = pathlib.Path(topologies.__file__).absolute().parents[2]
    shutil.copytree(
      sources, copy / sources.name, ignore=shutil.ignore_patterns('*.pyc')
    )
    paths = [
      p for p in sys.path if pathlib.Path(p).absolute() != sources.parent
    ]
    subprocess.run(
      [
        sys.executable,
        '-m',
        'saxml_ext.aot.tpu.compile_programs',
        '--params=saxml_ext.params.gptj.GPTJTokenizedINT8V5E2x2',
        '--topology=v5e_2x2',
        f'--out={root / "set"}',
        *(f'--override={name}={value}' for name, value in _SMALL.items()),
      ],
      env={
        **os.environ,
        'PYTHONHASHSEED': str(seed),
        'PYTHONPATH': os.pathsep.join([str(copy), *paths]),
      },
      check=True,
      cwd=copy,
    )
    return root / 'set'


def _contents(path: pathlib.Path) -> dict[str, bytes]:
  return {file.name: file.read_bytes() for file in path.iterdir()}


if __name__ == '__main__':
  absltest.main()
