"""Flags that say which system answers, and the system they describe."""

from absl import flags

from harness.bert import launcher as bert
from harness.caching import cache as cache_lib
from harness.data import bundle
from harness.loadgen import target as target_lib
from harness.rules import rounds
from harness.scenarios.flags import flag_table
from harness.systems import launch
from harness.systems import network_launchers
from saxml_ext.common import cell as cell_files
from saxml_ext.common import errors
from saxml_ext.common import user_path
from saxml_ext.common.security import tls_flags
from serve import local_cell

SYSTEMS = {
  rounds.GPTJ: tuple(
    kind for kind in flag_table.GPTJ_SYSTEMS if kind != flag_table.RUNNING_CELL
  ),
  rounds.BERT: flag_table.BERT_SYSTEMS,
}
_LON = 'lon'

_SYSTEM = flags.DEFINE_enum(
  'system',
  None,
  [kind for kinds in SYSTEMS.values() for kind in kinds],
  'What answers. GPT-J: cell (the default), a Sax cell, started here unless'
  ' --model_path names a model of a running one; engine, its engine in'
  " LoadGen's process; reference, transformers on PyTorch. BERT: onnxruntime"
  ' (the default) or pytorch.',
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
  'params',
  bundle.PARAMS,
  'Serving params for the cell or the engine that is started.',
)
CHECKPOINT = flags.DEFINE_string(
  'checkpoint',
  None,
  'Checkpoint of the system that is started: PAX, for the reference and BERT'
  ' that of Hugging Face, for onnxruntime also an ONNX file. Default: the'
  ' bundled model.',
)
_HOSTS = flags.DEFINE_integer(
  'hosts',
  1,
  'Processes of the model server of the cell that is started: more than one'
  ' compute the model together, as a group of so many hosts does, on the CPU'
  ' unless JAX_PLATFORMS says otherwise.',
  lower_bound=1,
)
_NETWORK = flags.DEFINE_enum(
  'network',
  None,
  [_LON],
  'lon (LoadGen over network): the run is one of the Network division; the cell'
  ' of --model_path runs on other hosts.',
)
_SUT_SERVER = flags.DEFINE_list(
  'sut_server', [], '"host:port" of every node of --system=network.'
)
_CONNECTIONS = flags.DEFINE_integer(
  'connections', 1, 'Connections to each node of --system=network.', 1
)
_STREAM = flags.DEFINE_bool(
  'stream',
  False,
  'Ask the cell of --model_path by GenerateStream, so that the time to the first'
  ' token is measured; for models that do not search, on servers that stream.',
)
_DEVICE = flags.DEFINE_string(
  'device',
  'cpu',
  'Where reference, onnxruntime and pytorch compute: cpu or cuda.',
)
_PRECISION = flags.DEFINE_string(
  'precision',
  None,
  'Number format of reference and pytorch: float32 (the default), bfloat16,'
  ' float16; of onnxruntime: float32 (the default), float16, int8.',
)
_BEAM_SIZE = flags.DEFINE_integer(
  'beam_size',
  None,
  'Beams of --system=reference. Default: $GPTJ_BEAM_SIZE, or 4. A cell searches'
  ' as its serving params say.',
  lower_bound=1,
)
_BATCH_SIZE = flags.DEFINE_integer(
  'batch_size',
  None,
  'Most samples that are computed together. Default: 1 of the reference, 8 of'
  ' BERT. A cell batches as its serving params say.',
  lower_bound=1,
)
_THREADS = flags.DEFINE_integer(
  'threads', 0, "BERT's threads of the CPU; 0: one for each core.", 0
)
_OVERRIDES = flags.DEFINE_multi_string(
  'override',
  [],
  'NAME=JSON: an attribute of the serving params that shall differ, such as'
  ' BATCH_SIZE=8, for the cell or the engine that is started. May be repeated.',
)
_JAX_CACHE_DIR = flags.DEFINE_string(
  'jax_cache_dir',
  None,
  'Where the server that is started keeps compiled programs, for a faster'
  ' next start; empty: nowhere. Default: jax in --cache_dir.',
)


def kind(benchmark: str) -> str:
  """Returns the system that the flags ask for, of flag_table.SYSTEMS.

  Args:
    benchmark: LoadGen's name of the benchmark.

  Raises:
    ValueError: The system does not answer the benchmark.
  """
  kinds = SYSTEMS[benchmark]
  asked = _SYSTEM.value or kinds[0]
  if asked not in kinds:
    raise ValueError(
      f'--system={asked} does not answer {benchmark}; choose one of'
      f' {", ".join(kinds)}'
    )
  if asked == flag_table.OWN_CELL and MODEL_PATH.value:
    return flag_table.RUNNING_CELL
  return asked


def system(asked: str, cache: cache_lib.Cache) -> launch.Launcher:
  """Returns the system that the flags describe.

  Args:
    asked: The system that `kind` returned.
    cache: The cache, for files that no flag gives a place.

  Raises:
    ValueError: A flag's value cannot be used.
  """
  try:
    tls_flags.export()  # For the programs that are started.
  except errors.SaxError as e:
    raise ValueError(e.message) from e
  if asked == flag_table.NETWORK:
    return _network_sut()
  if asked == flag_table.RUNNING_CELL:
    return _running_cell()
  checkpoint = user_path.resolve(CHECKPOINT.value)
  if asked in flag_table.BERT_SYSTEMS:
    return bert.Bert(
      asked,
      checkpoint,
      _DEVICE.value,
      _PRECISION.value,
      _BATCH_SIZE.value,
      _THREADS.value,
    )
  if asked == flag_table.REFERENCE:
    return launch.Reference(
      checkpoint,
      _DEVICE.value,
      _PRECISION.value,
      _BEAM_SIZE.value,
      _BATCH_SIZE.value or 1,
    )
  jax_cache_dir = cache.jax
  if _JAX_CACHE_DIR.value is not None:
    jax_cache_dir = user_path.resolve(_JAX_CACHE_DIR.value)
  params, overrides = _PARAMS.value, _overrides()
  if asked == flag_table.ENGINE:
    return launch.Engine(params, overrides, checkpoint, jax_cache_dir)
  overrides = local_cell.group_overrides(_HOSTS.value, overrides)
  return launch.OwnCell(
    params, overrides, checkpoint, jax_cache_dir, _HOSTS.value
  )


def _network_sut() -> launch.Launcher:
  if not _SUT_SERVER.value:
    raise ValueError(
      '--system=network needs --sut_server, the address of every node, such as'
      ' --sut_server=10.0.0.7:8000,10.0.0.8:8000'
    )
  return network_launchers.NetworkSut(
    tuple(_SUT_SERVER.value), _CONNECTIONS.value
  )


def _running_cell() -> launch.Launcher:
  target = target_lib.Target(
    MODEL_PATH.value, cell_files.sax_root(_SAX_ROOT.value)
  )
  cell = launch.RunningCell(target, _STREAM.value)
  return network_launchers.CellOverNetwork(cell) if _NETWORK.value else cell


def _overrides() -> dict[str, str]:
  overrides = {}
  for text in _OVERRIDES.value:
    name, separator, value = text.partition('=')
    if not (name and separator):
      raise ValueError(f'--override={text}: write it as NAME=JSON')
    overrides[name] = value
  return overrides
