"""Joins all processes of a group in one job of jax.distributed."""

from collections.abc import Callable
import os
import threading

from absl import logging
import jax

from saxml_ext.common import errors
from saxml_ext.groups import formation
from saxml_ext.groups import leader_address

# A fallback if the group's own timeouts fail: JAX ends the process when the job
# is dead.
_HEARTBEAT_SECS = 10
# The time by which JAX's timeout exceeds ours, so that ours expires first.
_LATER_SECS = 60
_BIND = 'JAX_COORDINATOR_BIND_ADDRESS'


def initialize(
  formed: formation.Formation,
  timeout_secs: float,
  on_timeout: Callable[[str], None],
) -> None:
  """Joins the job; call this before the first use of a device.

  If JAX keeps compiled programs, set its cache directory before this call.

  Args:
    formed: The formation of this process.
    timeout_secs: The seconds within which the processes must find each other.
    on_timeout: A function that is called with the reason after the timeout. It
      must end the process, because JAX would end it with a stack trace.

  Raises:
    errors.FailedPrecondition: JAX cannot join the job.
  """
  timer = threading.Timer(
    timeout_secs,
    on_timeout,
    (
      f'process {formed.process_id} of {formed.num_processes} did not find the'
      f' others at {formed.coordinator_address} within {timeout_secs:g} s.'
      ' Check that all of them run, that this is the address of process 0, and'
      ' that its port is open between the hosts.',
    ),
  )
  timer.daemon = True
  timer.start()
  # JAX's preemption service would handle SIGTERM, which stops this program.
  jax.config.update('jax_enable_preemption_service', False)
  try:
    jax.distributed.initialize(
      formed.coordinator_address,
      formed.num_processes,
      formed.process_id,
      # `formation` has already detected the cluster.
      cluster_detection_method='deactivate',
      initialization_timeout=round(timeout_secs) + _LATER_SECS,
      heartbeat_timeout_seconds=_HEARTBEAT_SECS,
      coordinator_bind_address=os.environ.get(_BIND)
      or (formed.coordinator_address if formed.interface else None),
    )
  except (RuntimeError, ValueError) as e:
    reason = str(e).partition('\n')[0].rstrip('.')
    raise errors.FailedPrecondition(
      f'process {formed.process_id} of {formed.num_processes} cannot join the'
      f' group at {formed.coordinator_address}: {reason}'
    ) from e
  finally:
    timer.cancel()
  if formed.process_id:
    _keep_compiled(formed.process_id)


def _keep_compiled(process_id: int) -> None:
  """Makes a follower keep its compiled programs in its own directory.

  JAX 0.10 writes its compilation cache only in process 0. On CPUs, a follower
  cannot use the programs of process 0. The cache keys contain hashes of the
  devices, and these differ between processes. Only this private function of JAX
  decides which processes write.
  """
  from jax._src import compilation_cache  # pylint: disable=g-import-not-at-top
  from jax._src import compiler  # pylint: disable=g-import-not-at-top

  directory = jax.config.jax_compilation_cache_dir
  if not directory:
    return
  own = os.path.join(directory, f'process{process_id}')
  jax.config.update('jax_compilation_cache_dir', own)

  def write(key, seconds, module, backend, executable, callbacks) -> None:
    if callbacks:  # Callbacks are pointers into this process.
      return
    try:
      compilation_cache.put_executable_and_time(
        key, module, executable, backend, int(seconds)
      )
    except Exception as e:  # pylint: disable=broad-exception-caught
      logging.warning('group: cannot keep a compiled program in %s: %s', own, e)

  compiler._cache_write = write


def check(formed: formation.Formation) -> None:
  """Checks that the devices agree with the job.

  This is the first use of a device.

  Raises:
    errors.FailedPrecondition: JAX numbers the processes differently.
  """
  if (jax.process_index(), jax.process_count()) != (
    formed.process_id,
    formed.num_processes,
  ):
    raise errors.FailedPrecondition(
      f'this is process {formed.process_id} of {formed.num_processes}, but its'
      f' devices are those of process {jax.process_index()} of'
      f' {jax.process_count()}. Number the processes like the hosts of the TPU'
      ' slice, or use --group=tpu.'
    )


def key_value_store() -> leader_address.JaxStore:
  """Returns the key-value store of the job."""
  # JAX has no public name for the store. Its own multihost_utils also uses this
  # private one.
  from jax._src import distributed  # pylint: disable=g-import-not-at-top

  return leader_address.JaxStore(distributed.global_state.client)
