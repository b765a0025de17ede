"""The engine as the flags want it, as LoadGen's system."""

from absl import flags

from harness.data import bundle
from harness.data import summarization_flags
from harness.loadgen import system
from harness.network import network_program
from harness.network import payload
from harness.systems.engine import engine_system
from saxml_ext.common import errors
from saxml_ext.common import user_path
from saxml_ext.params import all_params  # noqa: F401 Registers them.
from saxml_ext.params import overrides as overrides_lib
from saxml_ext.params import registry
from saxml_ext.params import settings as settings_lib
from saxml_ext.server import jax_setup
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.loading import loader
from saxml_ext.server.programs import program_flags
from saxml_ext.server.scheduling import scheduler

_PARAMS = flags.DEFINE_string(
  'params', bundle.PARAMS, 'Serving params that the model is loaded under.'
)
_CHECKPOINT = flags.DEFINE_string(
  'checkpoint',
  bundle.pax_checkpoint(),
  'PAX checkpoint. Default: the bundled one, which Bazel makes.',
)
_OVERRIDE = flags.DEFINE_multi_string(
  'override',
  [],
  'NAME=JSON: an attribute of the serving params and its value, such as'
  ' BATCH_SIZE=8. May be given several times.',
)
_JAX_CACHE_DIR = flags.DEFINE_string(
  'jax_cache_dir',
  None,
  'Directory to keep compiled programs in, for a faster next start.',
)


def load() -> list[payload.Payload]:
  """Token ids of each article's prompt, int32 [T], as "input_ids".

  Raises:
    OSError, ValueError: a file or a flag cannot be used.
  """
  try:
    params = overrides_lib.apply(registry.lookup(_PARAMS.value), _overrides())
    settings = settings_lib.Settings.of(params)
    longest = settings.engine.max_prompt - (settings.sos_id is not None)
    task = summarization_flags.load(_checkpoint(), longest)
  except errors.SaxError as error:
    raise ValueError(error.message) from error
  return [{'input_ids': ids} for ids in task.prompt_ids]


def make(inputs: network_program.Inputs) -> system.System:
  """Loads the model.

  Args:
    inputs: what `load` returns, or the like from another machine.

  Raises:
    OSError, ValueError: a file or a flag cannot be used.
  """
  jax_setup.configure(user_path.resolve(_JAX_CACHE_DIR.value))
  try:
    jax_setup.check_devices()
    model = engine_system.load(
      entry_lib.Spec(_PARAMS.value, _checkpoint(), _overrides(), acls={}),
      program_flags.sets(),
    )
  except errors.SaxError as error:
    raise ValueError(error.message) from error
  if scheduler.GENERATE not in model.settings.methods:
    model.close(drain=False)
    raise ValueError(
      f'{_PARAMS.value} generates nothing (SCORE_ONLY or ENABLE_GENERATE):'
      ' give --params others'
    )
  return engine_system.EngineSystem(model, inputs)


def name() -> str:
  """What computes, for the log of a run over the network."""
  changes = ''.join(f' {text}' for text in _OVERRIDE.value)
  return f'GPT-J by the JAX engine, {_PARAMS.value}{changes}'


def _checkpoint() -> str:
  path = user_path.resolve(_CHECKPOINT.value)
  if not path:
    raise ValueError(
      'no checkpoint: give --checkpoint the directory of a PAX checkpoint, such'
      ' as `./bazelw run //converters:convert_gptj_ckpt` writes'
    )
  return loader.checkpoint_path(path)


def _overrides() -> dict[str, str]:
  return overrides_lib.of_flags(registry.lookup(_PARAMS.value), _OVERRIDE.value)
