"""Tests for living."""

import dataclasses
import gc

from absl.testing import absltest

from saxml_ext.engine import abstract_weights
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import executables
from saxml_ext.engine import state
from saxml_ext.engine.testing import fast_compile
from saxml_ext.server.programs import living as living_lib

fast_compile.install()

_MODEL = config_lib.ModelConfig(
  num_layers=1,
  model_dim=8,
  num_heads=1,
  head_dim=8,
  hidden_dim=16,
  rotary_dim=4,
  vocab_size=32,
)
_ENGINE = config_lib.EngineConfig(
  num_slots=2,
  eos_id=0,
  max_prompt=8,
  min_new_tokens=1,
  max_new_tokens=4,
  num_beams=2,
)
_KEY = executables.EmptyState()


def _run(
  ready: executables.Ready | None = None,
  dtype: str = 'float32',
  **changes,
) -> executables.Executables:
  engine = dataclasses.replace(_ENGINE, **changes)
  weights = abstract_weights.unrolled(_MODEL, dtype, None)
  return executables.Executables(
    state.Settings(_MODEL, engine), weights, None, ready
  )


class LivingTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.living = living_lib.Living()
    self.old = _run()
    self.old._prepare(_KEY)
    self.living.add(self.old)

  def _takes(self, **changes) -> bool:
    """Whether a model of such settings needs no compiling."""
    run = _run(self.living.ready(_run(**changes)), **changes)
    run._prepare(_KEY)
    return run.prepared(_KEY) is self.old.prepared(_KEY)

  def test_a_model_that_is_alike_takes_them(self):
    self.assertTrue(self._takes())

  def test_other_settings_need_other_programs(self):
    # This one shows in no shape.
    self.assertFalse(self._takes(length_penalty=2.0))
    self.assertFalse(self._takes(num_slots=3))
    self.assertFalse(self._takes(dtype='bfloat16'))

  def test_a_model_that_is_gone_is_not_asked(self):
    del self.old
    gc.collect()
    asked = []
    ready = self.living.ready(_run(), lambda key, _: asked.append(key))
    run = _run()
    self.assertIsNone(ready(_KEY, run.signature(_KEY)))
    # What nobody has comes from elsewhere.
    self.assertEqual(asked, [_KEY])

  def test_a_program_that_is_not_there_yet_is_not_waited_for(self):
    other = executables.Decode(2)
    self.assertIsNone(
      self.living.ready(_run())(other, self.old.signature(other))
    )


if __name__ == '__main__':
  absltest.main()
