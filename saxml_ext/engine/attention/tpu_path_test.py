"""Tests an engine that decodes as on TPU or GPU, with interpreted kernels."""

from absl.testing import absltest
import numpy as np

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import logical
from saxml_ext.engine import request as request_lib
from saxml_ext.engine import runner as runner_lib
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.attention import decode_attention
from saxml_ext.engine.kernels.tpu import block_list as work_lib
from saxml_ext.engine.testing import random_model
from saxml_ext.engine.testing import serving

_MODEL = config_lib.ModelConfig(
  num_layers=2,
  model_dim=32,
  num_heads=2,
  head_dim=16,
  hidden_dim=64,
  rotary_dim=8,
  vocab_size=64,
)
_ENGINE = dict(
  eos_id=0,
  num_slots=3,
  decode_widths=(1, 3),
  max_prompt=24,
  prompt_buckets=(24,),
  max_new_tokens=8,
  min_new_tokens=3,
  num_beams=4,
)


def _serve(stacked, **settings):
  """Returns the tokens of five requests; the last one decodes alone."""
  rng = np.random.default_rng(7)
  requests = [
    request_lib.Request(
      rng.integers(1, 64, size).astype(np.int32), max_new_tokens=most
    )
    for size, most in ((1, 4), (24, 5), (8, 6), (16, 5), (17, 8))
  ]
  engine = config_lib.EngineConfig(**_ENGINE, **settings)
  weights = weights_lib.from_pax(
    random_model.variables(_MODEL, scale=3.0), _MODEL
  )
  if stacked:
    weights = weights_lib.stack(weights)
  runner = runner_lib.Runner(weights, _MODEL, engine)
  return serving.tokens(serving.serve(runner, requests))


class TpuPathTest(absltest.TestCase):
  def test_tokens_are_those_of_xla(self):
    alone = _serve(stacked=False, suffix_block=4)
    self.assertGreater(len({str(t) for t in alone}), 3)
    # There is one segment, and one block that wraps and has fewer rows than
    # steps.
    with decode_attention.interpreted(work_lib.Blocks(16, 16, 8)):
      got = _serve(stacked=True, prompt_segments=(24,), suffix_block=8)
      with logical.targeting('gpu'):
        by_gpu = _serve(stacked=False, prompt_segments=(24,), suffix_block=8)
    self.assertEqual(got, alone)
    self.assertEqual(by_gpu, alone)


if __name__ == '__main__':
  absltest.main()
