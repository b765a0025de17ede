"""Loads a checkpoint's weights like a model server; prints time and memory.

  load_memory --params=gptj.GPTJ4TokenizedINT8BS32XLA --checkpoint=DIR

Only the weights are measured. The keys and values of a server's slots need
additional memory.
"""

from collections.abc import Sequence
import resource
import time

from absl import flags
import jax
import jax.numpy as jnp

from saxml_ext.common import errors
from saxml_ext.common import program
from saxml_ext.common import user_path
from saxml_ext.params import all_params  # noqa: F401 Registers them.
from saxml_ext.params import registry
from saxml_ext.params import settings as settings_lib
from saxml_ext.pax import description
from saxml_ext.server.loading import stored_model

_PARAMS = flags.DEFINE_string('params', None, 'The name of the serving params.')
_CHECKPOINT = flags.DEFINE_string('checkpoint', None, 'The PAX checkpoint.')


def main(argv: Sequence[str]) -> None:
  del argv
  jnp.zeros(8).block_until_ready()  # Excludes JAX's own memory.
  before, begin = _peak(), time.monotonic()
  try:
    path = user_path.resolve(_CHECKPOINT.value)
    settings = stored_model.complete(
      settings_lib.Settings.from_params(registry.lookup(_PARAMS.value)),
      description.read(path),
    )
    stored = stored_model.StoredModel(path)
    weights = stored.weights(stored.config(settings), settings, device=None)
  except (errors.SaxError, OSError) as error:
    raise SystemExit(f'load_memory: {error}') from error
  seconds = time.monotonic() - begin
  size = sum(leaf.nbytes for leaf in jax.tree.leaves(weights))
  grown = _peak() - before
  print(
    f'{_PARAMS.value}: weights {size / 1e6:.0f} MB, peak {grown / 1e6:.0f} MB'
    f' ({grown / size:.2f} times) in {seconds:.0f} s'
  )


def _peak() -> int:
  """Returns the peak memory of this process in bytes."""
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == '__main__':
  flags.mark_flags_as_required(['params', 'checkpoint'])
  program.run(main)
