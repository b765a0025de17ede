"""Rarely used flags of stock Sax's model server, and their values.

The other flags are in `server.py`. Names and meanings are those of stock Sax,
see saxml/server/model_service_main.py of google/saxml.
"""

import json

from absl import flags
import jax

from saxml_ext.common import errors
from saxml_ext.common import user_path
from saxml_ext.common.security import roots

ADMIN_PORT = flags.DEFINE_integer(
  'admin_port',
  None,
  'The port of an admin server of --sax_cell in this process; 0 picks a free'
  ' port. Default: no admin server.',
  lower_bound=0,
  upper_bound=65535,
)
_MODEL_CONFIG_OVERRIDES = flags.DEFINE_string(
  'model_config_overrides',
  '',
  'The overrides of --models: one JSON object per model, separated by commas,'
  ' such as {"BATCH_SIZE": 4},{}.',
)
_DETERMINISTIC_RNG = flags.DEFINE_bool(
  'deterministic_rng',
  False,
  'Derive the seeds of requests without a seed from a fixed seed. The same'
  ' requests in the same order then get the same answers.',
)
EARLY_REJECT = flags.DEFINE_bool(
  'early_reject_on_dormant',
  False,
  'Refuse requests at once while this server is dormant (from SIGTERM to its'
  ' end), instead of answering those that still arrive.',
)
KEEP_STATIC = flags.DEFINE_bool(
  'keep_statically_loaded_models',
  False,
  'Serve only --models. The server offers no model path to the cell, and the'
  ' cell cannot load, replace or unload a model here.',
)
_JAX_PROFILER_PORT = flags.DEFINE_integer(
  'jax_profiler_port',
  None,
  "The port of JAX's profiler, for TensorBoard and xprof.",
  lower_bound=1,
  upper_bound=65535,
)

# The seed of stock Sax.
_SEED = 1234
_LOAD_ROOTS = flags.DEFINE_list(
  'load_roots',
  [],
  'The directories and URLs from which checkpoints and vocabularies may be'
  ' loaded, also through symbolic links. Default: anywhere.',
)


def seed() -> int | None:
  """Returns the seed from which samples get their seeds; None for random."""
  return _SEED if _DETERMINISTIC_RNG.value else None


def overrides(count: int) -> list[dict[str, str]]:
  """Returns the overrides of the models in the flags.

  Args:
    count: The number of models.

  Returns:
    For each model, a mapping from attributes to values as JSON.

  Raises:
    errors.InvalidArgument: The flag does not have `count` JSON objects.
  """
  text = _MODEL_CONFIG_OVERRIDES.value.strip()
  if not text:
    return [{} for _ in range(count)]
  try:
    # Commas separate the objects, so brackets make the text a JSON array.
    objects = json.loads(f'[{text}]')
  except json.JSONDecodeError as e:
    raise errors.InvalidArgument(
      f'--model_config_overrides={text} is not a list of JSON objects: {e.msg}'
      f' at character {e.pos}. Example: {{"BATCH_SIZE": 4}},{{}}'
    ) from e
  if len(objects) != count or not all(isinstance(f, dict) for f in objects):
    raise errors.InvalidArgument(
      f'--model_config_overrides={text} has {len(objects)} entries for {count}'
      ' models. Pass one JSON object for each of --models, or {} for none.'
    )
  return [{k: json.dumps(v) for k, v in values.items()} for values in objects]


def start_profiler() -> None:
  """Starts JAX's profiler, if the flag sets a port.

  Raises:
    errors.FailedPrecondition: The profiler cannot be started.
  """
  port = _JAX_PROFILER_PORT.value
  if port is None:
    return
  try:
    jax.profiler.start_server(port)
  except (RuntimeError, ValueError) as e:
    raise errors.FailedPrecondition(
      f'--jax_profiler_port={port}: the profiler failed to start: {e}'
    ) from e


def configure_load_roots() -> None:
  """Applies --load_roots; raises InvalidArgument for an invalid path."""
  roots.configure([user_path.resolve(root) for root in _LOAD_ROOTS.value])
