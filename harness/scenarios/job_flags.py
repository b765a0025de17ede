"""Flags of the programs that run a scenario, and the job they describe."""

import os

from absl import flags

from harness.data import bundle
from harness.data import summarization
from harness.loadgen import settings
from harness.scenarios import config as config_lib
from harness.systems import target as target_lib
from saxml_ext.common import cell as cell_files
from saxml_ext.common import user_path

# Only silence tells that the servers of a running cell are gone; those that we
# start are watched, so a slow machine may have all the time it needs.
_RUNNING_SILENCE_SECS = 25.0
_STARTED_SILENCE_SECS = 120.0

_MODE = flags.DEFINE_list(
  'mode',
  [config_lib.ACCURACY, config_lib.PERFORMANCE],
  'Runs to make: accuracy, performance, or both.',
)
_RESULTS_DIR = flags.DEFINE_string(
  'results_dir',
  None,
  'Where logs and the report go. Default: results/ and the scenario.',
)
_MODEL_PATH = flags.DEFINE_string(
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
_CHECKPOINT = flags.DEFINE_string(
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
  os.path.join(
    os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache'),
    'gptj_sax',
    'jax',
  ),
  'Where the server that is started keeps compiled programs, for a faster'
  ' next start; empty: nowhere.',
)
_DATASET_PATH = flags.DEFINE_string(
  'dataset_path',
  None,
  'Evaluation file in the schema of cnn_eval.json. Default: the bundled'
  ' articles.',
)
_TOKENIZER_PATH = flags.DEFINE_string(
  'tokenizer_path',
  None,
  "tokenizer.json of the model. Default: the bundled model's.",
)
_REFERENCE_PATH = flags.DEFINE_string(
  'reference_path',
  None,
  'Recorded tokens and ROUGE to compare with. Default: the bundled reference'
  ' when the bundled model answers the bundled articles, else none.',
)
_ROUGE_TOLERANCE = flags.DEFINE_float(
  'rouge_tolerance',
  0.01,
  "Greatest difference from the reference's ROUGE that passes.",
  lower_bound=0,
)
_REQUIRE_IDENTICAL = flags.DEFINE_bool(
  'require_identical',
  None,
  "Pass only if every answer is the reference's, token for token. Default:"
  ' where the name of the serving params says FP32.',
)
_MAX_INPUT_LENGTH = flags.DEFINE_integer(
  'max_input_length',
  bundle.MAX_INPUT_LENGTH,
  'Tokens after which a prompt is cut (GPT-J 6B: 1919).',
  lower_bound=1,
)
_SAMPLE_COUNT = flags.DEFINE_integer(
  'sample_count', 0, 'Articles to use, from the front; 0: all.', lower_bound=0
)
_MIN_DURATION = flags.DEFINE_integer(
  'min_duration',
  settings.DEMO_MIN_DURATION_MS,
  'Shortest valid performance run in ms; officially'
  f' {settings.OFFICIAL_MIN_DURATION_MS}.',
  lower_bound=1,
)
_TARGET_QPS = flags.DEFINE_float(
  'target_qps',
  None,
  'Expected samples/s, rather too high than too low. Default: from the speed'
  ' of the accuracy run; without that run, one pass over the articles.',
)
_CONCURRENCY = flags.DEFINE_integer(
  'concurrency', 64, 'Most unanswered requests.', lower_bound=1
)
_SILENCE_SECS = flags.DEFINE_float(
  'silence_secs',
  None,
  'Time without any answer after which a run is given up; raise it for a'
  ' model that needs longer for one article. Default:'
  f' {_RUNNING_SILENCE_SECS:.0f} with --model_path, else'
  f' {_STARTED_SILENCE_SECS:.0f}.',
  lower_bound=1,
)


def config(program: str, scenario: str) -> config_lib.JobConfig:
  """The job that the flags describe.

  Args:
    program: name of the program, for where results go.
    scenario: LoadGen's name.

  Raises:
    ValueError: a flag's value cannot be used.
  """
  unknown = set(_MODE.value) - {config_lib.ACCURACY, config_lib.PERFORMANCE}
  if unknown or not _MODE.value:
    raise ValueError(
      f'--mode={",".join(_MODE.value)}: choose {config_lib.ACCURACY},'
      f' {config_lib.PERFORMANCE} or both with a comma between'
    )
  target = _target()
  bundled = not (target or _CHECKPOINT.value or _DATASET_PATH.value)
  reference = user_path.resolve(_REFERENCE_PATH.value)
  if _REFERENCE_PATH.value is None and bundled:
    reference = bundle.reference_path()
  return config_lib.JobConfig(
    scenario=scenario,
    modes=tuple(_MODE.value),
    results_dir=user_path.resolve(_RESULTS_DIR.value or f'results/{program}'),
    target=target,
    params=_PARAMS.value,
    overrides=_overrides(),
    checkpoint=user_path.resolve(_CHECKPOINT.value),
    jax_cache_dir=user_path.resolve(_JAX_CACHE_DIR.value),
    source=_source(),
    reference_path=reference,
    rouge_tolerance=_ROUGE_TOLERANCE.value,
    require_identical=_REQUIRE_IDENTICAL.value,
    min_duration_ms=_MIN_DURATION.value,
    target_qps=_TARGET_QPS.value,
    concurrency=_CONCURRENCY.value,
    silence_secs=_SILENCE_SECS.value
    or (_RUNNING_SILENCE_SECS if target else _STARTED_SILENCE_SECS),
  )


def _target() -> target_lib.Target | None:
  if not _MODEL_PATH.value:
    return None
  return target_lib.Target(
    _MODEL_PATH.value, cell_files.sax_root(_SAX_ROOT.value)
  )


def _source() -> summarization.Source:
  return summarization.Source(
    user_path.resolve(_DATASET_PATH.value) or bundle.eval_path(),
    user_path.resolve(_TOKENIZER_PATH.value) or bundle.tokenizer_path(),
    _MAX_INPUT_LENGTH.value,
    _SAMPLE_COUNT.value,
  )


def _overrides() -> dict[str, str]:
  overrides = {}
  for text in _OVERRIDES.value:
    name, separator, value = text.partition('=')
    if not (name and separator):
      raise ValueError(f'--override={text}: write it as NAME=JSON')
    overrides[name] = value
  return overrides
