"""Compiles decoding for TPU v5e 2x2, with two layers of GPT-J 6B.

The test requires libtpu but no TPU. It takes minutes.
"""

import os

# libtpu reads these when it is loaded. They turn off requests to the metadata
# server, the lock file and the logs.
for _name, _value in {
  'TPU_SKIP_MDS_QUERY': '1',
  'TPU_WORKER_HOSTNAMES': 'localhost',
  'TPU_ACCELERATOR_TYPE': 'v5litepod-4',
  'ALLOW_MULTIPLE_LIBTPU_LOAD': '1',
  'TPU_LOG_DIR': 'disabled',
  'JAX_PLATFORMS': 'cpu',
}.items():
  os.environ.setdefault(_name, _value)
# .bazelrc turns optimization off for programs that tests run.
os.environ.pop('XLA_FLAGS', None)

from absl.testing import absltest
from absl.testing import parameterized
import jax
from jax.experimental import topologies

from saxml_ext.engine import abstract_weights
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import executables
from saxml_ext.engine import platform_configs
from saxml_ext.engine import program_keys
from saxml_ext.engine import sharding
from saxml_ext.engine import state

_MODEL = config_lib.ModelConfig(
  num_layers=2,
  model_dim=4096,
  num_heads=16,
  head_dim=256,
  hidden_dim=16384,
  rotary_dim=64,
  vocab_size=50401,
)
_SLOTS, _WIDTH, _MIB = 16, 2, 1 << 20


def _compile(kv_dtype: str, width: int) -> jax.stages.Compiled:
  engine = config_lib.EngineConfig(
    eos_id=50256,
    num_slots=_SLOTS,
    decode_widths=(_WIDTH, _SLOTS),
    max_prompt=1919,
    prompt_buckets=(1919,),
    kv_dtype=kv_dtype,
  )
  topology = topologies.get_topology_desc(
    platform='tpu', topology_name='v5e:2x2'
  )
  mesh = sharding.make_mesh((1, 1, 4), topology.devices)
  weights = abstract_weights.shapes(_MODEL, 'bfloat16', 'int8', stacked=True)
  weights = jax.eval_shape(lambda w: sharding.pad(mesh, w), weights)
  settings = state.Settings(_MODEL, platform_configs.tiled(engine))
  run = executables.Executables(settings, weights, mesh)
  return run.lower(program_keys.Decode(width)).compile()


class TpuProgramTest(parameterized.TestCase):
  @parameterized.parameters(
    ('int8', _SLOTS), ('int8', _WIDTH), ('bfloat16', _SLOTS)
  )
  def test_kv_is_neither_padded_nor_copied(self, kv_dtype, width):
    compiled = _compile(kv_dtype, width)
    self.assertIn('attend_beams', compiled.as_text())
    memory = compiled.memory_analysis()
    # Each chip has 4 heads of 256 with keys and values. In int8 they have
    # scales of float32.
    row = 2 * 4 * (256 + 4 if kv_dtype == 'int8' else 512)
    kv = _MODEL.num_layers * _SLOTS * row * (1920 + 128 * 4)
    suffix = kv * 512 // (1920 + 512)
    # The matrices of a layer and the head are int8. The embedding is bfloat16.
    weights = _MODEL.num_layers * 12 * 4096**2 // 4 + 3 * 4096 * 50688 // 4
    args = memory.argument_size_in_bytes
    self.assertBetween(args, kv + weights, kv + weights + 2 * _MIB)
    self.assertAlmostEqual(memory.output_size_in_bytes, suffix, delta=2 * _MIB)
    self.assertAlmostEqual(
      memory.alias_size_in_bytes, memory.output_size_in_bytes, delta=_MIB
    )
    self.assertLess(memory.temp_size_in_bytes, suffix)
    self.assertLess(memory.peak_memory_in_bytes, args + 128 * _MIB)


if __name__ == '__main__':
  absltest.main()
