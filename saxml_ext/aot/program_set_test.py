"""Tests program sets: written, read, rejected, and run by a real engine."""

import dataclasses
import hashlib
import os
import pathlib
import tempfile

from absl.testing import absltest
from absl.testing import parameterized
import jax
import numpy as np

from saxml_ext.aot import compile_set
from saxml_ext.aot import configuration
from saxml_ext.aot import manifest as manifest_lib
from saxml_ext.aot import program_set
from saxml_ext.aot.testing import small_engine
from saxml_ext.common import errors
from saxml_ext.engine import executables
from saxml_ext.engine import program_keys
from saxml_ext.engine import request as request_lib
from saxml_ext.engine import runner as runner_lib
from saxml_ext.engine.testing import serving

_MODEL, _ENGINE = small_engine.MODEL, small_engine.ENGINE
_SERVING = small_engine.SERVING


def _requests() -> list[request_lib.Request]:
  rng = np.random.default_rng(0)
  return [
    request_lib.Request(rng.integers(2, 96, n).astype(np.int32))
    for n in (3, 8, 12, 16)
  ]


def _answers(runner: runner_lib.Runner) -> list[list[list[int]]]:
  return serving.tokens(serving.serve(runner, _requests()))


class ProgramSetTest(parameterized.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.weights = small_engine.weights()
    cls.run_ = small_engine.executables()
    directory = tempfile.mkdtemp(dir=absltest.TEST_TMPDIR.value)
    cls.path = os.path.join(directory, 'set')
    compile_set.compile_set(cls.path, cls.run_, cls.run_.keys(), _SERVING)

  def test_runner_of_a_complete_set_compiles_nothing(self):
    expected = _answers(runner_lib.Runner(self.weights, _MODEL, _ENGINE))
    opened = program_set.ProgramSet.open(self.path)
    lines: list[str] = []
    with executables.counting_compilations() as compiled:
      runner = runner_lib.Runner(
        self.weights, _MODEL, _ENGINE, ready=opened.load
      )
      runner.warm_up(lines.append)
      self.assertEqual(_answers(runner), expected)
      runner.score(np.arange(4), np.arange(5))
    self.assertEqual(compiled, [])
    self.assertRegex(lines[-1], '^9 programs are ready: 9 loaded, 0 compiled')

  def test_set_has_stablehlo_for_other_versions(self):
    opened = program_set.ProgramSet.open(self.path)
    expected = _answers(runner_lib.Runner(self.weights, _MODEL, _ENGINE))
    runner = runner_lib.Runner(
      self.weights, _MODEL, _ENGINE, ready=opened.compile
    )
    self.assertEqual(_answers(runner), expected)

  def test_manifest_lists_programs_and_configuration(self):
    opened = program_set.ProgramSet.open(self.path)
    manifest = opened.manifest
    self.assertEqual(
      [p.key for p in manifest.programs],
      sorted(str(key) for key in self.run_.keys()),
    )
    self.assertEqual(
      manifest.configuration,
      configuration.from_executables(self.run_, _SERVING),
    )
    decode = manifest.program('decode 2')
    assert decode is not None
    # The program overwrites the suffix block and the slots.
    self.assertGreater(decode.memory.aliased, 0)
    self.assertGreater(decode.memory.arguments, decode.memory.aliased)
    # Decode does not use the sampling seeds, and `hypotheses` does not use the
    # weights.
    self.assertLen(decode.dropped, 1)
    hypotheses = manifest.program('hypotheses')
    assert hypotheses is not None
    self.assertGreater(
      len(hypotheses.dropped), len(jax.tree.leaves(self.weights))
    )
    self.assertEqual(
      manifest.configuration.weights['layers.0.up'],
      manifest_lib.Leaf((32, 64), 'float32'),
    )

  def test_every_file_of_the_set_is_in_the_manifest(self):
    manifest = program_set.ProgramSet.open(self.path).manifest
    files = [f for p in manifest.programs for f in p.files.values()]
    self.assertCountEqual(
      os.listdir(self.path), [*(f.path for f in files), 'manifest.json']
    )
    for file in files:
      content = pathlib.Path(self.path, file.path).read_bytes()
      self.assertEqual(file.bytes, len(content))
      self.assertEqual(file.sha256, hashlib.sha256(content).hexdigest())

  def test_missing_key_gives_none(self):
    opened = program_set.ProgramSet.open(self.path)
    key = program_keys.Decode(1)
    signature = self.run_.signature(program_keys.EmptyState())
    self.assertIsNone(opened.load(key, signature))
    self.assertIsNone(opened.compile(key, signature))


class RefusalTest(parameterized.TestCase):
  """Tests sets that cannot be used."""

  def setUp(self):
    super().setUp()
    self.run_ = small_engine.executables()
    self.key = program_keys.Hypotheses()
    self.path = os.path.join(self.create_tempdir().full_path, 'set')
    compile_set.compile_set(
      self.path, self.run_, [self.key], _SERVING, stablehlo=False
    )
    self.opened = program_set.ProgramSet.open(self.path)
    self.file = pathlib.Path(self.path, 'hypotheses.executable')

  def _load(self):
    return self.opened.load(self.key, self.run_.signature(self.key))

  def test_damaged_file_is_refused(self):
    content = bytearray(self.file.read_bytes())
    content[100] ^= 1
    self.file.write_bytes(content)
    with self.assertRaisesRegex(
      errors.FailedPrecondition, 'hypotheses.executable is damaged: its SHA-256'
    ):
      self._load()

  def test_missing_file_is_refused(self):
    self.file.unlink()
    with self.assertRaisesRegex(
      errors.FailedPrecondition, 'hypotheses.executable is missing'
    ):
      self._load()

  def test_executable_that_cannot_be_loaded_is_refused(self):
    self.file.write_bytes(b'nonsense')
    (program,) = self.opened.manifest.programs
    files = {'executable': program_set.file_of(self.file.name, b'nonsense')}
    manifest = dataclasses.replace(
      self.opened.manifest,
      programs=(dataclasses.replace(program, files=files),),
    )
    self.opened = program_set.ProgramSet(self.path, manifest)
    with self.assertRaisesRegex(
      errors.FailedPrecondition, "the runtime cannot load 'hypotheses'"
    ):
      self._load()

  def test_missing_stablehlo_is_refused(self):
    with self.assertRaisesRegex(
      errors.FailedPrecondition, "has no stablehlo of 'hypotheses'"
    ):
      self.opened.compile(self.key, self.run_.signature(self.key))

  def test_directory_without_manifest_is_refused(self):
    with self.assertRaisesRegex(
      errors.InvalidArgument,
      'is not a program set, because it has no manifest.json',
    ):
      program_set.ProgramSet.open(self.create_tempdir().full_path)

  def test_damaged_manifest_is_refused(self):
    pathlib.Path(self.path, 'manifest.json').write_text('{')
    with self.assertRaisesRegex(errors.InvalidArgument, 'it is not JSON'):
      program_set.ProgramSet.open(self.path)

  def test_directory_with_files_is_not_overwritten(self):
    before = sorted(os.listdir(self.path))
    with self.assertRaisesRegex(OSError, 'set is not empty. Choose a new'):
      program_set.write(self.path, self.opened.manifest, {})
    self.assertEqual(sorted(os.listdir(self.path)), before)
    self.assertLen(os.listdir(os.path.dirname(self.path)), 1)


if __name__ == '__main__':
  absltest.main()
