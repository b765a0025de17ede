import socket
import subprocess
import sys

from absl.testing import absltest

from saxml_ext.engine.parallel import cpu_collectives

# Each of two processes contributes its own number, and all receive the sum.
_SUM = """
import os, sys
import jax
import numpy as np
from saxml_ext.engine.parallel import cpu_collectives
address, process = sys.argv[1], int(sys.argv[2])
jax.distributed.initialize(
  address, 2, process, cluster_detection_method='deactivate'
)
print(cpu_collectives.listen_towards(address), flush=True)
mesh = jax.make_mesh((2,), ('x',), (jax.sharding.AxisType.Auto,))
spec = jax.sharding.PartitionSpec
own = jax.sharding.NamedSharding(mesh, spec('x'))
all = jax.sharding.NamedSharding(mesh, spec())
x = jax.make_array_from_callback((2,), own, np.array([3, 4]).__getitem__)
print(jax.jit(lambda x: x.sum(), out_shardings=all)(x), flush=True)
jax.distributed.shutdown()
"""


class CpuCollectivesTest(absltest.TestCase):
  def test_two_processes_find_each_other(self):
    with socket.socket() as free:
      free.bind(('127.0.0.1', 0))
      address = f'127.0.0.1:{free.getsockname()[1]}'
    processes = [
      subprocess.Popen(
        [sys.executable, '-c', _SUM, address, str(i)],
        env={
          'PYTHONPATH': ':'.join(filter(None, sys.path)),
          'JAX_PLATFORMS': 'cpu',
          'JAX_NUM_CPU_DEVICES': '1',
        },
        stdout=subprocess.PIPE,
        text=True,
      )
      for i in range(2)
    ]
    for process in processes:
      self.addCleanup(process.communicate)
      self.addCleanup(process.kill)
    for process in processes:
      lines = process.communicate(timeout=300)[0].splitlines()
      self.assertEqual((lines[0], lines[-1]), ('127.0.0.1', '7'))

  def test_the_address_depends_on_the_destination(self):
    # No data is sent. Every machine has a route to itself.
    self.assertEqual(cpu_collectives.source_address('127.0.0.1:9'), '127.0.0.1')
    self.assertIn(
      cpu_collectives.source_address('localhost:9'), ('127.0.0.1', '::1')
    )
    with self.assertRaises(OSError):
      cpu_collectives.source_address('no-such.host.invalid:9')

  def test_it_needs_several_processes(self):
    with self.assertRaisesRegex(RuntimeError, 'jax.distributed.initialize'):
      cpu_collectives.listen_towards('127.0.0.1:9')


if __name__ == '__main__':
  absltest.main()
