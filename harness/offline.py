"""The MLPerf Offline scenario, end to end, by one command.

Starts a Sax cell on this machine with the bundled model (or uses a running
one), lets LoadGen ask it for summaries, scores them, and prints LoadGen's
summary and ROUGE beside the reference's. Exit code 0 means that LoadGen calls
the run VALID and ROUGE is within the tolerance.
"""

from collections.abc import Sequence
import os
import signal
import sys

from absl import app
from absl import flags

from harness import bundle
from harness import children
from harness import job as job_lib
from harness import local_cell
from harness import progress as progress_lib
from harness import report
from harness import run_process
from harness import settings
from saxml_ext.common import cell as cell_files
from saxml_ext.common import errors
from saxml_ext.common import user_path

# Only silence tells that the servers of a running cell are gone; those that we
# start are watched, so a slow machine may have all the time it needs.
_RUNNING_SILENCE_SECS = 25.0
_STARTED_SILENCE_SECS = 120.0

_MODE = flags.DEFINE_list(
    'mode',
    [job_lib.ACCURACY, job_lib.PERFORMANCE],
    'Runs to make: accuracy, performance, or both.',
)
_RESULTS_DIR = flags.DEFINE_string(
    'results_dir', 'results/offline', 'Where logs and the report go.'
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


def main(argv: Sequence[str]) -> int:
  if len(argv) > 1:
    raise app.UsageError(f'unexpected argument {argv[1]!r}')
  for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, _end)
  progress = progress_lib.Progress()
  try:
    config = _config()
    job = job_lib.Job(config, progress)
    os.makedirs(config.results_dir, exist_ok=True)
    outcome = job.run()
  except KeyboardInterrupt:
    return _failed('interrupted; everything that was started is stopped', 130)
  except (
      children.ChildError,
      errors.SaxError,
      local_cell.CellError,
      run_process.RunError,
      OSError,
      ValueError,
  ) as error:
    return _failed(str(error))
  text = report.render(outcome.comparison, outcome.performance)
  path = report.write(config.results_dir, config.scenario, text)
  progress.text(f'\n{text}\nlogs and this report: {path}')
  problems = outcome.problems()
  return _failed('; '.join(problems)) if problems else 0


def _end(number: int, unused_frame) -> None:
  # Unwinds the stack, and with it everything that was started.
  raise SystemExit(128 + number)


def _failed(reason: str, code: int = 1) -> int:
  print(f'offline: {reason}', file=sys.stderr, flush=True)
  return code


def _config() -> job_lib.JobConfig:
  unknown = set(_MODE.value) - {job_lib.ACCURACY, job_lib.PERFORMANCE}
  if unknown or not _MODE.value:
    raise ValueError(
        f"--mode={','.join(_MODE.value)}: choose {job_lib.ACCURACY},"
        f' {job_lib.PERFORMANCE} or both with a comma between'
    )
  running = _MODEL_PATH.value
  bundled = not (running or _CHECKPOINT.value or _DATASET_PATH.value)
  reference = user_path.resolve(_REFERENCE_PATH.value)
  if _REFERENCE_PATH.value is None and bundled:
    reference = bundle.reference_path()
  return job_lib.JobConfig(
      scenario='Offline',
      modes=tuple(_MODE.value),
      results_dir=user_path.resolve(_RESULTS_DIR.value),
      model_path=running,
      sax_root=cell_files.sax_root(_SAX_ROOT.value) if running else None,
      params=_PARAMS.value,
      checkpoint=user_path.resolve(_CHECKPOINT.value),
      overrides=_overrides(),
      jax_cache_dir=user_path.resolve(_JAX_CACHE_DIR.value),
      dataset_path=user_path.resolve(_DATASET_PATH.value) or bundle.eval_path(),
      tokenizer_path=user_path.resolve(_TOKENIZER_PATH.value)
      or bundle.tokenizer_path(),
      reference_path=reference,
      rouge_tolerance=_ROUGE_TOLERANCE.value,
      max_input_length=_MAX_INPUT_LENGTH.value,
      sample_count=_SAMPLE_COUNT.value,
      min_duration_ms=_MIN_DURATION.value,
      target_qps=_TARGET_QPS.value,
      concurrency=_CONCURRENCY.value,
      silence_secs=_SILENCE_SECS.value
      or (_RUNNING_SILENCE_SECS if running else _STARTED_SILENCE_SECS),
  )


def _overrides() -> dict[str, str]:
  overrides = {}
  for text in _OVERRIDES.value:
    name, separator, value = text.partition('=')
    if not (name and separator):
      raise ValueError(f'--override={text}: write it as NAME=JSON')
    overrides[name] = value
  return overrides


if __name__ == '__main__':
  app.run(main)
