"""Tests of the choice and the refusal of program sets."""

import dataclasses
import json
import os
import pathlib
import shutil
import tempfile
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from saxml_ext.aot import compile_set
from saxml_ext.aot import configuration
from saxml_ext.aot import manifest as manifest_lib
from saxml_ext.aot import program_set
from saxml_ext.common import errors
from saxml_ext.engine import request as request_lib
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.loading import loader
from saxml_ext.server.programs import programs
from saxml_ext.server.programs import recent_programs
from saxml_ext.server.testing import small_model

_TIMEOUT = 600


def _changed(
  opened: program_set.ProgramSet, **changes
) -> program_set.ProgramSet:
  """Returns a set with another configuration and the same programs."""
  changed = dataclasses.replace(opened.manifest.configuration, **changes)
  return program_set.ProgramSet(
    opened.path,
    dataclasses.replace(opened.manifest, configuration=changed),
  )


class ProgramsTest(parameterized.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    directory = tempfile.mkdtemp(dir=absltest.TEST_TMPDIR.value)
    cls.checkpoint = small_model.write(os.path.join(directory, 'checkpoint'))
    cls.path = os.path.join(directory, 'set')
    made = loader.plan(cls._spec())
    run = made.executables()
    compile_set.compile_set(cls.path, run, run.keys(), made.serving)
    cls.opened = program_set.ProgramSet.open(cls.path)

  @classmethod
  def _spec(cls, **overrides: str) -> entry_lib.Spec:
    return entry_lib.Spec(
      small_model.MODEL_PATH,
      cls.checkpoint,
      {'BATCH_SIZE': '1', 'MAX_DECODE_STEPS': '4', **overrides},
      acls={},
    )

  def _find(self, opened, mismatch=programs.REFUSE, **overrides):
    made = loader.plan(self._spec(**overrides))
    taken = programs.Programs((opened,), mismatch)
    return taken.find(made.executables(), made.serving)

  def _answer(self, sets: programs.Programs):
    servable = loader.load(self._spec(), self.fail, sets)
    self.addCleanup(servable.close, drain=False)
    request = request_lib.Request(np.array([1, 2, 3], np.int32))
    return servable.scheduler.generate(request).result(_TIMEOUT)

  def test_model_with_a_program_set_compiles_nothing(self):
    with self.assertLogs() as logs:
      answer = self._answer(programs.Programs.open([self.path]))
    self.assertRegex('\n'.join(logs.output), 'loaded .*, 0 programs compiled')
    expected = self._answer(programs.NONE)
    for one, other in zip(answer.hypotheses, expected.hypotheses, strict=True):
      np.testing.assert_array_equal(one.tokens, other.tokens)
      self.assertEqual(one.score, other.score)

  def _cached_answer(self, cache: programs.Programs):
    """Returns an answer of a new server, and the log of its load."""
    recent = recent_programs.RecentPrograms()
    with (
      mock.patch.object(loader, '_RECENT', recent),
      self.assertLogs() as logs,
    ):
      answer = self._answer(cache)
    return answer, '\n'.join(logs.output)

  def test_cache_keeps_every_compiled_program(self):
    cache = programs.Programs(cache=self.create_tempdir().full_path)
    expected, log = self._cached_answer(cache)
    self.assertIn('7 programs are ready: 0 loaded, 7 compiled', log)
    [directory] = pathlib.Path(cache.cache).iterdir()
    self.assertIn('decode_1', os.listdir(directory))
    answer, log = self._cached_answer(cache)
    self.assertRegex(log, 'loaded .*, 0 programs compiled')
    for one, other in zip(answer.hypotheses, expected.hypotheses, strict=True):
      np.testing.assert_array_equal(one.tokens, other.tokens)
      self.assertEqual(one.score, other.score)
    # A damaged program and a missing one are compiled again, alone.
    (directory / 'decode_1' / 'decode_1.executable').write_bytes(b'')
    shutil.rmtree(directory / 'hypotheses')
    _, log = self._cached_answer(cache)
    self.assertIn('decode 1 is compiled again: ', log)
    self.assertIn('7 programs are ready: 5 loaded, 2 compiled', log)
    _, log = self._cached_answer(cache)
    self.assertIn('7 programs are ready: 7 loaded, 0 compiled', log)

  def test_cache_of_a_gpu_keeps_tilings_for_all_programs(self):
    here = dataclasses.replace(
      self.opened.manifest.configuration,
      target=manifest_lib.Target('cuda', 'NVIDIA H100 80GB HBM3', 1),
      versions={'runtime': 'jax-cuda13-pjrt 0.10.2'},
    )
    made = loader.plan(self._spec())
    run = made.executables()
    path = self.create_tempdir().full_path
    with (
      mock.patch.object(configuration, 'from_executables', return_value=here),
      mock.patch.object(compile_set, 'build', side_effect=KeyError) as build,
      self.assertRaises(KeyError),
    ):
      source = programs.Programs(cache=path).find(run, made.serving)
      source.build(run, run.keys()[0])
    [kept] = build.call_args.args[2].values()
    self.assertEqual(kept, os.path.join(path, 'tilings_jax-cuda13-pjrt_0.10.2'))
    self.assertTrue(os.path.isdir(kept))

  def test_unrelated_settings_may_differ(self):
    self.assertIsNotNone(self._find(self.opened, MAX_LIVE_BATCHES='2'))

  def test_other_versions_compile_the_stablehlo(self):
    versions = self.opened.manifest.configuration.versions
    opened = _changed(self.opened, versions={**versions, 'jaxlib': '0.1'})
    with self.assertLogs() as logs:
      answer = self._answer(programs.Programs((opened,)))
    text = '\n'.join(logs.output)
    self.assertIn('are compiled from StableHLO: versions.jaxlib: the set', text)
    expected = self._answer(programs.Programs.open([self.path]))
    for one, other in zip(answer.hypotheses, expected.hypotheses, strict=True):
      np.testing.assert_array_equal(one.tokens, other.tokens)

  @parameterized.parameters(
    (dict(NUM_SLOTS='3'), None),
    (dict(BATCH_SIZE='2'), 'engine.num_slots: the set has 1, here it is 2'),
    (
      dict(QUANTIZATION='"int8"'),
      'weights.layers.0.down: the set has .*, here it is nothing; .*19 more',
    ),
    (dict(KV_CACHE_DTYPE='"int8"'), 'engine.kv_dtype: the set has "float32"'),
  )
  def test_set_of_another_model_is_refused(self, overrides, message):
    if message is None:  # NUM_SLOTS is not an attribute, so it is ignored.
      self.assertIsNotNone(self._find(self.opened, **overrides))
      return
    with self.assertRaisesRegex(
      errors.FailedPrecondition, f'does not match: .*{message}'
    ):
      self._find(self.opened, **overrides)
    with self.assertLogs(level='WARNING') as logs:
      taken = self._find(self.opened, programs.COMPILE, **overrides)
    self.assertIsNone(taken)
    self.assertRegex(logs.output[0], f'is compiled: .*{message}')

  def test_set_of_another_machine_is_refused(self):
    target = self.opened.manifest.configuration.target
    other = dataclasses.replace(
      target, threads=target.threads + 1, features=(*target.features, 'avx9')
    )
    with self.assertRaisesRegex(
      errors.FailedPrecondition,
      'target.features: the set has avx9, which is missing here;'
      ' target.threads: the set has',
    ):
      self._find(_changed(self.opened, target=other))

  def test_set_of_another_engine_is_refused(self):
    versions = self.opened.manifest.configuration.versions
    opened = _changed(self.opened, versions={**versions, 'engine': 'f00'})
    with self.assertRaisesRegex(
      errors.FailedPrecondition, 'versions.engine: the set has "f00"'
    ):
      self._find(opened)

  def test_incomplete_set_is_refused(self):
    rest = self.opened.manifest.programs[1:]
    lacking = dataclasses.replace(self.opened.manifest, programs=rest)
    with self.assertRaisesRegex(
      errors.FailedPrecondition, 'the set lacks the programs decode 1'
    ):
      self._find(program_set.ProgramSet(self.path, lacking))

  def test_sets_of_other_params_are_ignored(self):
    serving = manifest_lib.Serving('some.other.Params', {})
    target = dataclasses.replace(
      self.opened.manifest.configuration.target, kind='other'
    )
    with self.assertLogs() as logs:
      taken = self._find(_changed(self.opened, serving=serving, target=target))
    self.assertIsNone(taken)
    self.assertIn('has no program set, so it is compiled', logs.output[0])

  def test_programs_writable_by_others_are_refused(self):
    cache = self.create_tempdir().full_path
    os.chmod(cache, 0o777)
    with self.assertRaisesRegex(errors.InvalidArgument, 'chmod go-w'):
      programs.Programs.open([], cache=cache)
    os.chmod(cache, 0o755)
    copy = os.path.join(cache, 'set')
    shutil.copytree(self.path, copy)
    programs.Programs.open([copy], cache=cache)
    for path in (copy, os.path.join(copy, os.listdir(copy)[0])):
      mode = os.stat(path).st_mode & 0o777
      os.chmod(path, mode | 0o002)
      with self.assertRaisesRegex(errors.InvalidArgument, 'chmod go-w'):
        programs.Programs.open([copy])
      os.chmod(path, mode)
    if os.geteuid() == 0:
      os.chown(os.path.join(copy, 'manifest.json'), 12345, -1)
      with self.assertRaisesRegex(errors.InvalidArgument, 'user 12345 owns'):
        programs.Programs.open([copy])

  def test_directory_without_a_set_is_refused(self):
    with self.assertRaisesRegex(errors.InvalidArgument, 'is not a program set'):
      programs.Programs.open([self.create_tempdir().full_path])

  def test_the_manifest_names_params_and_overrides(self):
    with open(os.path.join(self.path, 'manifest.json'), 'rb') as file:
      serving = json.load(file)['configuration']['serving']
    self.assertEqual(
      serving,
      {
        'model_path': small_model.MODEL_PATH,
        'overrides': {'BATCH_SIZE': '1', 'MAX_DECODE_STEPS': '4'},
      },
    )


if __name__ == '__main__':
  absltest.main()
