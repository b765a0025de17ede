"""Tests that each process of a group uses only the memory of its own shards."""

import json
import tempfile

from absl.testing import absltest

from saxml_ext.common import net
from saxml_ext.common.testing import modules
from saxml_ext.server.testing import int8_model

_MOST_OVER_WEIGHTS = 1.3
# The memory of the first use of tensorstore and JAX, for any model.
_OF_THE_PROCESS = 96 * 2**20


class ShardMemoryTest(absltest.TestCase):
  def test_two_processes_take_half_each(self):
    """Checks that each process holds half of the weights, which are 345 MB."""
    directory = tempfile.mkdtemp(dir=absltest.TEST_TMPDIR.value)
    int8_model.write(directory)
    overrides = {
      'EOS_ID': 0,
      'ROTARY_DIM': int8_model.ROTARY_DIM,
      'QUANTIZATION': 'int8',
      'QUANTIZE_SOFTMAX': True,
      'ICI_MESH_SHAPE': [1, 1, 2],
    }
    coordinator = f'127.0.0.1:{net.pick_free_port()}'
    running = [
      modules.start(
        self,
        'tests.groups.engine.shard_memory',
        f'--checkpoint={directory}',
        f'--overrides={json.dumps(overrides)}',
        f'--coordinator_address={coordinator}',
        '--num_processes=2',
        f'--process_id={i}',
        JAX_NUM_CPU_DEVICES='1',
      )
      for i in range(2)
    ]
    for process in running:
      printed, stderr = process.communicate(timeout=600)
      self.assertEqual(process.returncode, 0, stderr[-4000:])
      figures = json.loads(printed.splitlines()[-1])
      self.assertBetween(figures['weights'], 172e6, 175e6)
      most = _MOST_OVER_WEIGHTS * figures['weights'] + _OF_THE_PROCESS
      self.assertLess(figures['grown'], most)


if __name__ == '__main__':
  absltest.main()
