"""One LoadGen run against a model of a running cell.

A process runs LoadGen once: its own benchmark defaults reach only the first
settings object of a process, so a second run would silently lose the seeds.
The harness starts this program for each run and reads run_status lines from
its output. It ends with exit code 1 as soon as an answer fails.
"""

from collections.abc import Callable, Sequence
from concurrent import futures
import os
import threading
import time

from absl import app
from absl import flags
import mlperf_loadgen

from harness.data import summarization
from harness.loadgen import run_status
from harness.loadgen import settings
from harness.loadgen import sut as sut_lib
from saxml_ext.client import sax

MODES = {
  'accuracy': mlperf_loadgen.TestMode.AccuracyOnly,
  'performance': mlperf_loadgen.TestMode.PerformanceOnly,
}

_SCENARIO = flags.DEFINE_enum(
  'scenario', 'Offline', ['Offline'], 'LoadGen scenario.'
)
_MODE = flags.DEFINE_enum('mode', None, sorted(MODES), 'What to run.')
_USER_CONF = flags.DEFINE_string('user_conf', None, "LoadGen's user.conf.")
_OUTPUT_DIR = flags.DEFINE_string('output_dir', None, 'Where logs go.')
_MODEL_PATH = flags.DEFINE_string(
  'model_path', None, 'Model id, /sax/<cell>/<model>.'
)
_SAX_ROOT = flags.DEFINE_string(
  'sax_root', None, "Root of the model's cell. Default: $SAX_ROOT."
)
_DATASET_PATH = flags.DEFINE_string('dataset_path', None, 'Evaluation file.')
_TOKENIZER_PATH = flags.DEFINE_string('tokenizer_path', None, 'tokenizer.json')
_MAX_INPUT_LENGTH = flags.DEFINE_integer(
  'max_input_length', None, 'Tokens after which a prompt is cut.', 1
)
_SAMPLE_COUNT = flags.DEFINE_integer(
  'sample_count', 0, 'Articles to take; 0: all.'
)
_CONCURRENCY = flags.DEFINE_integer(
  'concurrency', None, 'Most unanswered requests.', 1
)
_SILENCE_SECS = flags.DEFINE_float(
  'silence_secs', None, 'Time without any answer that ends the run.', 1
)

_STATUS_INTERVAL_SECS = 0.5

# The silence watch is what ends a run. The deadline only tells the server when
# nobody can be waiting any more; a request may spend most of its time in the
# server's queue, so it must be far longer.
_DEADLINE_FACTOR = 20


def main(argv: Sequence[str]) -> None:
  del argv
  try:
    task = summarization.Source(
      _DATASET_PATH.value,
      _TOKENIZER_PATH.value,
      _MAX_INPUT_LENGTH.value,
      _SAMPLE_COUNT.value,
    ).load()
  except (OSError, ValueError) as error:
    _give_up(str(error), None)
  sut = sut_lib.SystemUnderTest(
    _generate(),
    task.prompts,
    _CONCURRENCY.value,
    summarization.end_ids(task.tokenizer),
  )
  threading.Thread(target=_watch, args=(sut,), daemon=True).start()
  _run(sut, len(task.prompts))
  counts = sut.counts()
  run_status.send(
    run_status.RunStatus(counts.issued, counts.done, counts.seconds, True)
  )


def _generate() -> Callable[[str], futures.Future]:
  """How to send one prompt to the model."""
  if _SAX_ROOT.value:
    sax.SetRoot(_SAX_ROOT.value)
  options = sax.ModelOptions()
  options.SetTimeout(_SILENCE_SECS.value * _DEADLINE_FACTOR)
  model = sax.Model(_MODEL_PATH.value).LM()
  return lambda prompt: model.GenerateAsync(prompt, options)


def _run(sut: sut_lib.SystemUnderTest, sample_count: int) -> None:
  """Lets LoadGen run to its end; blocks."""
  test = mlperf_loadgen.TestSettings()
  test.FromConfig(_USER_CONF.value, settings.MODEL, _SCENARIO.value)
  test.scenario = getattr(mlperf_loadgen.TestScenario, _SCENARIO.value)
  test.mode = MODES[_MODE.value]
  log = mlperf_loadgen.LogSettings()
  log.enable_trace = False
  output = mlperf_loadgen.LogOutputSettings()
  output.outdir = _OUTPUT_DIR.value
  output.copy_summary_to_stdout = False
  log.log_output = output
  # All prompts are in memory before the run, so there is nothing to load.
  library = mlperf_loadgen.ConstructQSL(
    sample_count, sample_count, lambda indices: None, lambda indices: None
  )
  handle = mlperf_loadgen.ConstructSUT(sut.issue, sut.flush)
  # An audit.config in the user's directory must not change the run.
  mlperf_loadgen.StartTestWithLogSettings(handle, library, test, log, '')
  mlperf_loadgen.DestroySUT(handle)
  mlperf_loadgen.DestroyQSL(library)


def _watch(sut: sut_lib.SystemUnderTest) -> None:
  """Reports progress, and ends the process when the run cannot go on."""
  while True:
    time.sleep(_STATUS_INTERVAL_SECS)
    counts = sut.counts()
    if sut.failure:
      _give_up(sut.failure, counts)
    open_samples = counts.issued - counts.done
    if open_samples and counts.silence_secs > _SILENCE_SECS.value:
      _give_up(
        f'no answer for {counts.silence_secs:.0f} s (limit'
        f' {_SILENCE_SECS.value:.0f} s) with {counts.in_flight} requests in'
        f' flight and {counts.done} of {counts.issued} answered; the model'
        f' server is gone or too slow: look at it, or raise --silence_secs',
        counts,
      )
    run_status.send(
      run_status.RunStatus(counts.issued, counts.done, counts.seconds)
    )


def _give_up(reason: str, counts: sut_lib.Counts | None) -> None:
  issued, done = (counts.issued, counts.done) if counts else (0, 0)
  run_status.send(run_status.RunStatus(issued, done, failure=reason))
  # LoadGen waits for answers that will not come, in a call that cannot be
  # interrupted.
  os._exit(1)


if __name__ == '__main__':
  flags.mark_flags_as_required(
    [
      'mode',
      'user_conf',
      'output_dir',
      'model_path',
      'dataset_path',
      'tokenizer_path',
      'max_input_length',
      'concurrency',
      'silence_secs',
    ]
  )
  app.run(main)
