"""Lets programs of this package join a group by flags, as the server does."""

from absl import flags
import jax

from saxml_ext.engine.parallel import cpu_collectives

_COORDINATOR = flags.DEFINE_string('coordinator_address', None, 'HOST:PORT.')
_PROCESSES = flags.DEFINE_integer('num_processes', 1, 'Of the group.')
_PROCESS = flags.DEFINE_integer('process_id', 0, 'This one.')


def join() -> None:
  """Joins the group that the flags name, if they name a coordinator."""
  if not _COORDINATOR.value:
    return
  jax.distributed.initialize(
    _COORDINATOR.value,
    _PROCESSES.value,
    _PROCESS.value,
    cluster_detection_method='deactivate',
  )
  cpu_collectives.listen_towards(_COORDINATOR.value)
