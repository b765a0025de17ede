"""Flags of stock Sax's model server that are seldom needed, and what they say.

The others stand in `server.py`. Names and meanings are stock's, see
saxml/server/model_service_main.py of google/saxml.
"""

import json

from absl import flags
import jax

from saxml_ext.common import errors
from saxml_ext.common import user_path
from saxml_ext.common.security import roots

_ADMIN_PORT = flags.DEFINE_integer(
  'admin_port',
  None,
  'Port of an admin server of --sax_cell in this process; 0 picks a free one.'
  ' Default: there is none.',
  lower_bound=0,
  upper_bound=65535,
)
_MODEL_CONFIG_OVERRIDES = flags.DEFINE_string(
  'model_config_overrides',
  '',
  'Overrides of --models: one JSON object for each, separated by commas, such'
  ' as {"BATCH_SIZE": 4},{}.',
)
_DETERMINISTIC_RNG = flags.DEFINE_bool(
  'deterministic_rng',
  False,
  'Draw the seeds of samples, of requests that give none, from a fixed one:'
  ' the same requests in the same order get the same answers.',
)
_EARLY_REJECT_ON_DORMANT = flags.DEFINE_bool(
  'early_reject_on_dormant',
  False,
  'Refuse requests at once while this server is dormant, which it is from'
  ' SIGTERM to its end, instead of answering what still arrives.',
)
_KEEP_STATICALLY_LOADED_MODELS = flags.DEFINE_bool(
  'keep_statically_loaded_models',
  False,
  'Serve what --models names and nothing else: the cell is offered no model'
  ' path, and cannot load, replace or unload a model here.',
)
_JAX_PROFILER_PORT = flags.DEFINE_integer(
  'jax_profiler_port',
  None,
  "Port of JAX's profiler, for TensorBoard and xprof to connect to.",
  lower_bound=1,
  upper_bound=65535,
)

# Stock Sax's.
_SEED = 1234
_LOAD_ROOTS = flags.DEFINE_list(
  'load_roots',
  [],
  'Directories and URLs; checkpoints and vocabularies are loaded from nowhere'
  ' else, also not through symbolic links. Default: from anywhere.',
)


def admin_port() -> int | None:
  """Of the admin server in this process; None: there is none."""
  return _ADMIN_PORT.value


def seed() -> int | None:
  """Of the seeds of samples; None: they are random."""
  return _SEED if _DETERMINISTIC_RNG.value else None


def keeps_static() -> bool:
  """Whether the models given by flags are all there will be."""
  return _KEEP_STATICALLY_LOADED_MODELS.value


def early_reject() -> bool:
  """Returns True if requests are refused once the server is to stop."""
  return _EARLY_REJECT_ON_DORMANT.value


def overrides(count: int) -> list[dict[str, str]]:
  """Overrides of the models given by flags, attribute -> value as JSON.

  Args:
    count: how many models there are.

  Raises:
    errors.InvalidArgument: the flag is not so many JSON objects.
  """
  text = _MODEL_CONFIG_OVERRIDES.value.strip()
  if not text:
    return [{} for _ in range(count)]
  try:
    # Commas separate the objects, and JSON's array is that with brackets.
    found = json.loads(f'[{text}]')
  except json.JSONDecodeError as e:
    raise errors.InvalidArgument(
      f'--model_config_overrides={text} is no list of JSON objects: {e.msg} at'
      f' character {e.pos}; expected such as {{"BATCH_SIZE": 4}},{{}}'
    ) from e
  if len(found) != count or not all(isinstance(f, dict) for f in found):
    raise errors.InvalidArgument(
      f'--model_config_overrides={text} has {len(found)} entries for {count}'
      ' models: give one JSON object for each of --models, {} for none'
    )
  return [{k: json.dumps(v) for k, v in each.items()} for each in found]


def start_profiler() -> None:
  """Starts JAX's profiler, if a port is given.

  Raises:
    errors.FailedPrecondition: it cannot be started.
  """
  port = _JAX_PROFILER_PORT.value
  if port is None:
    return
  try:
    jax.profiler.start_server(port)
  except (RuntimeError, ValueError) as e:
    raise errors.FailedPrecondition(
      f'--jax_profiler_port={port}: the profiler cannot be started: {e}'
    ) from e


def configure_load_roots() -> None:
  """Sets what the flag says; raises InvalidArgument if it is no place."""
  roots.configure([user_path.resolve(root) for root in _LOAD_ROOTS.value])
