"""Flags that say which system answers, and the system they describe."""

from absl import flags

from harness.caching import cache as cache_lib
from harness.data import bundle
from harness.systems import launch
from harness.systems import target as target_lib
from saxml_ext.common import cell as cell_files
from saxml_ext.common import user_path

CELL = 'cell'
GPTJ_SYSTEMS = (CELL,)

SYSTEM = flags.DEFINE_enum(
  'system',
  CELL,
  GPTJ_SYSTEMS,
  'What answers. cell: a Sax cell, started here unless --model_path names a'
  ' model of a running one.',
)
MODEL_PATH = flags.DEFINE_string(
  'model_path',
  None,
  'Model of a running cell, /sax/<cell>/<model>. Default: start a cell.',
)
_SAX_ROOT = flags.DEFINE_string(
  'sax_root', None, 'Root of the running cell. Default: $SAX_ROOT.'
)
_PARAMS = flags.DEFINE_string(
  'params', bundle.PARAMS, 'Serving params for the cell that is started.'
)
CHECKPOINT = flags.DEFINE_string(
  'checkpoint',
  None,
  'PAX checkpoint for the cell that is started. Default: the bundled model.',
)
_OVERRIDES = flags.DEFINE_multi_string(
  'override',
  [],
  'NAME=JSON: an attribute of the serving params that shall differ, such as'
  ' BATCH_SIZE=8, for the cell that is started. May be repeated.',
)
_JAX_CACHE_DIR = flags.DEFINE_string(
  'jax_cache_dir',
  None,
  'Where the server that is started keeps compiled programs, for a faster'
  ' next start; empty: nowhere. Default: jax in --cache_dir.',
)


def system(cache: cache_lib.Cache) -> launch.Launcher:
  """The system that the flags describe.

  Args:
    cache: for what nobody names a place.

  Raises:
    ValueError: a flag's value cannot be used.
  """
  if MODEL_PATH.value:
    return launch.RunningCell(
      target_lib.Target(MODEL_PATH.value, cell_files.sax_root(_SAX_ROOT.value))
    )
  return launch.OwnCell(
    _PARAMS.value,
    _overrides(),
    user_path.resolve(CHECKPOINT.value),
    cache.jax
    if _JAX_CACHE_DIR.value is None
    else user_path.resolve(_JAX_CACHE_DIR.value),
  )


def _overrides() -> dict[str, str]:
  overrides = {}
  for text in _OVERRIDES.value:
    name, separator, value = text.partition('=')
    if not (name and separator):
      raise ValueError(f'--override={text}: write it as NAME=JSON')
    overrides[name] = value
  return overrides
