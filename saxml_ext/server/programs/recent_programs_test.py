"""Tests of programs of recent models."""

import dataclasses
import gc
import weakref

from absl.testing import absltest

from saxml_ext.engine import abstract_weights
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import executables
from saxml_ext.engine import program_keys
from saxml_ext.engine import state
from saxml_ext.server.programs import recent_programs

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
_KEY = program_keys.EmptyState()


def _run(
  ready: executables.Ready | None = None,
  dtype: str = 'float32',
  **changes,
) -> executables.Executables:
  engine = dataclasses.replace(_ENGINE, **changes)
  weights = abstract_weights.shapes(_MODEL, dtype, None)
  return executables.Executables(
    state.Settings(_MODEL, engine), weights, None, ready
  )


class RecentProgramsTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.recent = recent_programs.RecentPrograms()
    self.old = _run()
    self.old._get(_KEY)
    self.recent.add(self.old)

  def _takes(self, **changes) -> bool:
    """Returns True if a model with such settings needs no compilation."""
    run = _run(self.recent.ready(_run(**changes)), **changes)
    run._get(_KEY)
    return run.prepared(_KEY) is self.old.prepared(_KEY)

  def test_equal_model_reuses_programs(self):
    self.assertTrue(self._takes())

  def test_other_settings_require_other_programs(self):
    # This setting does not change any shape.
    self.assertFalse(self._takes(length_penalty=2.0))
    self.assertFalse(self._takes(num_slots=3))
    self.assertFalse(self._takes(dtype='bfloat16'))

  def test_programs_outlive_their_model(self):
    program = self.old.prepared(_KEY)
    kept = weakref.ref(self.old)
    del self.old
    gc.collect()
    self.assertIsNone(kept())
    run = _run(self.recent.ready(_run()))
    run._get(_KEY)
    self.assertIs(run.prepared(_KEY), program)

  def test_missing_programs_come_from_the_fallback(self):
    missing = []
    other = program_keys.Decode(2)
    ready = self.recent.ready(_run(), lambda key, _: missing.append(key))
    self.assertIsNone(ready(other, self.old.signature(other)))
    self.assertEqual(missing, [other])

  def test_oldest_programs_are_dropped(self):
    again = _run(self.recent.ready(_run()))
    again._get(_KEY)
    for slots in (3, 4, 5):
      self.recent.add(again)  # Equal sets are kept once.
      self.recent.add(_run(num_slots=slots, decode_widths=(slots,)))
    self.assertTrue(self._takes())
    for slots in (6, 7, 8, 9):
      self.recent.add(_run(num_slots=slots, decode_widths=(slots,)))
    self.assertFalse(self._takes())


if __name__ == '__main__':
  absltest.main()
