"""Reads one process's shards of a checkpoint and prints the memory they need.

  shard_memory --checkpoint=DIR --overrides='{"QUANTIZATION": "int8"}'
      [--coordinator_address=HOST:PORT --num_processes=N --process_id=I]

It prints JSON: `weights` is the size of the shards on this process's devices in
bytes, and `grown` the peak growth of the process. To split a model among two
hosts, start it twice with ICI_MESH_SHAPE=[1, 1, 2] among the overrides. A
single process reads the whole model. Programs and the keys and values of slots
need additional memory, see benchmarks/parts/load_memory.py.
"""

from collections.abc import Sequence
import json

from absl import flags
import jax

from saxml_ext.common import program
from saxml_ext.common import user_path
from saxml_ext.params import gptj  # noqa: F401 Registers or sets up.
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.loading import loader
from tests.groups.engine import member

_PARAMS = flags.DEFINE_string(
  'params', 'saxml_ext.params.gptj.TinyTokenizedFP32', 'Serving params.'
)
_CHECKPOINT = flags.DEFINE_string(
  'checkpoint', None, 'PAX checkpoint.', required=True
)
_OVERRIDES = flags.DEFINE_string(
  'overrides', '{}', 'The overrides of the params as JSON.'
)


def main(argv: Sequence[str]) -> None:
  del argv
  member.join()
  values = json.loads(_OVERRIDES.value)
  overrides = {name: json.dumps(value) for name, value in values.items()}
  path = user_path.resolve(_CHECKPOINT.value)
  made = loader.plan(entry_lib.Spec(_PARAMS.value, path, overrides, acls={}))
  jax.numpy.zeros(8).block_until_ready()  # JAX's own memory does not count.
  before = _peak()
  weights = made.weights()
  size = sum(
    shard.data.nbytes
    for leaf in jax.tree.leaves(weights)
    for shard in leaf.addressable_shards
  )
  print(json.dumps({'weights': size, 'grown': _peak() - before}))


def _peak() -> int:
  """Returns the peak resident size of this process in bytes.

  getrusage is not used, because it includes the process that forked this one.
  """
  with open('/proc/self/status', encoding='ascii') as file:
    [line] = [line for line in file if line.startswith('VmHWM:')]
  return int(line.split()[1]) * 1024


if __name__ == '__main__':
  program.run(main)
