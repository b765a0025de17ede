"""Flags of a model server that runs on several hosts."""

from absl import flags
import jax

from saxml_ext.common import errors
from saxml_ext.common import flag_rules
from saxml_ext.common.machine import accelerators
from saxml_ext.groups import formation
from saxml_ext.groups import group_engine

_GROUP = flags.DEFINE_enum(
  'group',
  formation.AUTO,
  formation.SOURCES,
  'The source of the processes that form one model server: flags'
  ' (--coordinator_address, --num_processes, --process_id), lws (the variables'
  ' of LeaderWorkerSet) or tpu (the metadata of a TPU slice). auto uses the'
  ' first of these that has more than one process. none serves alone.',
)
_COORDINATOR_ADDRESS = flags.DEFINE_string(
  'coordinator_address',
  None,
  'The HOST:PORT on which process 0 of a group accepts the connections of the'
  ' others. Bind it to a private network.',
)
_NUM_PROCESSES = flags.DEFINE_integer(
  'num_processes', None, 'The number of processes in the group.', lower_bound=1
)
_PROCESS_ID = flags.DEFINE_integer(
  'process_id',
  None,
  'The number of this process in the group, from 0. Process 0 leads.',
  lower_bound=0,
)
_HOST_ORDINAL = flags.DEFINE_integer(
  'host_ordinal', None, "Stock Sax's name for --process_id.", lower_bound=0
)
PORT = flags.DEFINE_integer(
  'group_port',
  0,
  "The TCP port of the leader's log, for the followers; 0 picks a free port.",
  lower_bound=0,
  upper_bound=65535,
)
_GROUP_SILENCE_SECS = flags.DEFINE_float(
  'group_silence_secs',
  group_engine.Limits.silence,
  'The seconds without a message after which a host of the group is lost.',
  lower_bound=0.1,
)
_GROUP_STEP_SECS = flags.DEFINE_float(
  'group_step_secs',
  group_engine.Limits.step,
  "The maximum seconds of one call of a group's engine.",
  lower_bound=0.1,
)
_GROUP_LOAD_SECS = flags.DEFINE_float(
  'group_load_secs',
  group_engine.Limits.load,
  'The maximum seconds of one load of a model by a group.',
  lower_bound=0.1,
)
flag_rules.act_only(
  'in a group of several processes, or with --group=flags, lws or tpu',
  # A manifest with these flags is also valid for a group of one process.
  lambda: (
    _GROUP.value not in (formation.AUTO, formation.NONE)
    or is_group() is not False
  ),
  'group_port group_silence_secs group_step_secs group_load_secs',
)


def find() -> formation.Formation | None:
  """Returns this process's place in its group, or None if it serves alone.

  Raises:
    errors.InvalidArgument: The flags are not valid, see `formation.find`.
    errors.FailedPrecondition: The group is unknown, see `formation.find`.
  """
  return formation.find(
    formation.Given(
      _GROUP.value,
      _COORDINATOR_ADDRESS.value,
      _NUM_PROCESSES.value,
      _PROCESS_ID.value,
      _HOST_ORDINAL.value,
    ),
    _is_on_tpu(),
  )


def is_group() -> bool | None:
  """Returns True if this process is one of several; None if `find` fails."""
  try:
    return find() is not None
  except errors.SaxError:
    return None


def limits() -> group_engine.Limits:
  """Returns the timeouts of the group."""
  return group_engine.Limits(
    silence=_GROUP_SILENCE_SECS.value,
    step=_GROUP_STEP_SECS.value,
    load=_GROUP_LOAD_SECS.value,
  )


def _is_on_tpu() -> bool:
  """Returns True if this program will compute on TPU chips of this host."""
  detected = accelerators.detect()
  return (
    detected is not None
    and detected.kind == accelerators.TPU
    and accelerators.TPU in accelerators.used(jax.config.jax_platforms)
  )
