"""Tests a set for several devices, with stacked and split weights as on TPU."""

import dataclasses
import functools
import os
import tempfile

from absl.testing import absltest
import jax
import numpy as np

from saxml_ext.aot import compile_set
from saxml_ext.aot import configuration
from saxml_ext.aot import manifest as manifest_lib
from saxml_ext.aot import program_set
from saxml_ext.aot.testing import small_engine
from saxml_ext.engine import executables
from saxml_ext.engine import request as request_lib
from saxml_ext.engine import runner as runner_lib
from saxml_ext.engine import sharding
from saxml_ext.engine import state
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.testing import serving

jax.config.update('jax_num_cpu_devices', 4)

_MODEL = small_engine.MODEL
_ENGINE = dataclasses.replace(small_engine.ENGINE, prefill_chunk=0)


def _answers(runner: runner_lib.Runner) -> list[list[list[int]]]:
  rng = np.random.default_rng(0)
  return serving.tokens(
    serving.serve(
      runner,
      [
        request_lib.Request(rng.integers(2, 96, n).astype(np.int32))
        for n in (3, 8, 16)
      ],
    )
  )


class MeshSetTest(absltest.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.mesh = sharding.make_mesh((1, 1, 2))
    cls.weights = weights_lib.stack(small_engine.weights())
    cls.run_ = executables.Executables(
      state.Settings(_MODEL, _ENGINE),
      jax.eval_shape(lambda: sharding.pad(cls.mesh, cls.weights)),
      cls.mesh,
    )
    directory = tempfile.mkdtemp(dir=absltest.TEST_TMPDIR.value)
    path = os.path.join(directory, 'set')
    compile_set.compile_set(
      path, cls.run_, cls.run_.keys(), small_engine.SERVING
    )
    cls.opened = program_set.ProgramSet.open(path)

  @classmethod
  def _runner(cls, ready: executables.Ready | None) -> runner_lib.Runner:
    return runner_lib.Runner(cls.weights, _MODEL, _ENGINE, cls.mesh, ready)

  @classmethod
  @functools.cache
  def _expected(cls) -> list[list[list[int]]]:
    """Returns the answers of programs that the runner compiles itself."""
    return _answers(cls._runner(None))

  def test_runner_of_a_complete_set_compiles_nothing(self):
    expected = self._expected()
    with executables.counting_compilations() as compiled:
      runner = self._runner(self.opened.load)
      self.assertEqual(_answers(runner), expected)
      score = runner.score(np.arange(4), np.arange(5))
    self.assertLess(score, 0)
    self.assertEqual(compiled, [])

  def test_devices_may_come_in_another_order(self):
    # This is the order of the ring of four chips of a v5e host.
    ring = [jax.devices()[i] for i in (0, 1, 3, 2)]
    mesh = sharding.make_mesh((1, 1, 4), ring)
    self.assertEqual(mesh.devices.flatten().tolist(), ring)
    expected = _answers(runner_lib.Runner(self.weights, _MODEL, _ENGINE, mesh))
    run = executables.Executables(
      state.Settings(_MODEL, _ENGINE),
      jax.eval_shape(lambda: sharding.pad(mesh, self.weights)),
      mesh,
    )
    path = os.path.join(self.create_tempdir().full_path, 'ring')
    compile_set.compile_set(path, run, run.keys(), small_engine.SERVING)
    ready = program_set.ProgramSet.open(path).load
    with executables.counting_compilations() as compiled:
      runner = runner_lib.Runner(self.weights, _MODEL, _ENGINE, mesh, ready)
      self.assertEqual(_answers(runner), expected)
    self.assertEqual(compiled, [])

  def test_set_has_stablehlo_for_other_versions(self):
    answers = _answers(self._runner(self.opened.compile))
    self.assertEqual(answers, self._expected())

  def test_manifest_lists_the_partitioning(self):
    made_for = self.opened.manifest.configuration
    self.assertEqual(
      made_for, configuration.from_executables(self.run_, small_engine.SERVING)
    )
    self.assertEqual(made_for.mesh, (1, 1, 2))
    self.assertEqual(made_for.target.devices, 2)
    self.assertEqual(
      made_for.weights['head_bias'],
      manifest_lib.Leaf((256,), 'float32', ('model',)),
    )
    self.assertEqual(
      made_for.weights['layers.up'],
      manifest_lib.Leaf((2, 32, 64), 'float32', (None, None, 'model')),
    )


if __name__ == '__main__':
  absltest.main()
