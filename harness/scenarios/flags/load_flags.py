"""Flags that say what LoadGen is asked."""

import math

from absl import flags

from harness.loadgen import settings
from harness.rules import rounds
from harness.scenarios import load as load_lib
from saxml_ext.common import user_path

# Only silence tells that the servers of a running cell are gone; what we start
# is watched, so a slow machine may have all the time it needs.
_RUNNING_SILENCE_SECS = 25.0
_STARTED_SILENCE_SECS = 120.0
# LoadGen's Server bounds are far above a second, those of a stream may be less.
_LEAST_LATENCY_MS = 1e-3

_ROUND = flags.DEFINE_enum(
  'round',
  None,
  list(rounds.ROUNDS),
  'Round of MLPerf Inference whose seeds and rules LoadGen gets. Default:'
  f' {rounds.LAST_OF_GPTJ}, the last that has GPT-J; BERT: {rounds.LATEST}.',
)
EXECUTION_MODE = flags.DEFINE_enum(
  'execution_mode',
  None,
  load_lib.EXECUTION_MODES,
  'test: a handful of queries; fast: one to two minutes; valid: as the rules'
  ' ask. Default: a performance run of --min_duration.',
)
_MIN_DURATION = flags.DEFINE_integer(
  'min_duration',
  None,
  'Shortest valid performance run in ms. Default:'
  f' {settings.DEMO_MIN_DURATION_MS}, or as --execution_mode says; officially'
  f' {rounds.MIN_DURATION_MS}.',
  lower_bound=0,
)
_TARGET_QPS = flags.DEFINE_float(
  'target_qps',
  None,
  'Offline: expected samples/s, rather too high than too low. Server: queries/s'
  ' that are sent. Default: what find_performance found, else from the speed of'
  ' the accuracy run or of a trial.',
)
_TARGET_LATENCY_MS = flags.DEFINE_float(
  'target_latency_ms',
  None,
  "Server: the bound on the latency; default: the benchmark's. SingleStream,"
  ' MultiStream: the expected latency of a query; default: what'
  ' find_performance found, else from a trial.',
  lower_bound=_LEAST_LATENCY_MS,
)
_BUFFER_COUNT = flags.DEFINE_integer(
  'buffer_count',
  0,
  'Samples that a performance run draws from; 0: the whole set.',
  lower_bound=0,
)
_TEST_QUERY_COUNT = flags.DEFINE_integer(
  'test_query_count', 5, 'Queries of --execution_mode=test.', lower_bound=1
)
_EQUAL_ISSUE = flags.DEFINE_bool(
  'equal_issue',
  None,
  'Issue every sample as often as any other, in whole passes over the buffer.'
  " Default: as the round's rules say.",
)
_WARM_UP = flags.DEFINE_string(
  'warm_up',
  None,
  'Samples to answer before the first run, as sizes of bursts: 1-32,36 asks for'
  ' one sample, then for two at once, up to 32, then for 36; empty: none.'
  f' Default: {load_lib.WARM_UP} for GPT-J in a cell or the engine with'
  ' --execution_mode=valid, else none.',
)
_WARM_UP_REST_SECS = flags.DEFINE_float(
  'warm_up_rest_secs',
  None,
  'Pause between warm-up and run. Default:'
  f' {load_lib.WARM_UP_REST_SECS:.0f} after a warm-up by default, else 0.',
  lower_bound=0,
)
_CONCURRENCY = flags.DEFINE_integer(
  'concurrency',
  None,
  f'Most unanswered requests. Default: {load_lib.LEAST_CONCURRENCY}, and more'
  ' for a system that computes more than half as many samples together.',
  lower_bound=1,
)
_SILENCE_SECS = flags.DEFINE_float(
  'silence_secs',
  None,
  'Time without any answer after which a run is given up; raise it for a'
  ' model that needs longer for one sample. Default:'
  f' {_RUNNING_SILENCE_SECS:.0f} with --model_path, else'
  f' {_STARTED_SILENCE_SECS:.0f}.',
  lower_bound=1,
)
_USER_CONF = flags.DEFINE_string(
  'user_conf_override_path',
  None,
  "Lines for the end of LoadGen's user.conf, where they win.",
)


def round_name(benchmark: str) -> str:
  """Returns the name of the round whose rules hold for a benchmark."""
  latest = rounds.LAST_OF_GPTJ if benchmark == rounds.GPTJ else rounds.LATEST
  return _ROUND.value or latest


def load(
  scenario: str, benchmark: str, watched: bool, serves: bool
) -> load_lib.Load:
  """What the flags ask of LoadGen in a scenario.

  Args:
    scenario: LoadGen's name of it.
    benchmark: LoadGen's name of it.
    watched: whether the system is started, and watched, by the job.
    serves: whether a model server's engine answers.

  Raises:
    OSError, ValueError: a flag's value cannot be used.
  """
  qps = _TARGET_QPS.value
  if qps is not None and not (qps > 0 and math.isfinite(qps)):
    raise ValueError(f'--target_qps={qps}: must be above 0')
  warm_up, rest_secs = _warm_up(
    serves and EXECUTION_MODE.value == load_lib.VALID
  )
  extra = ''
  if _USER_CONF.value:
    with open(user_path.resolve(_USER_CONF.value), encoding='utf-8') as file:
      extra = file.read()
  return load_lib.Load(
    scenario=scenario,
    round=round_name(benchmark),
    execution_mode=EXECUTION_MODE.value,
    min_duration_ms=_MIN_DURATION.value,
    target_qps=qps,
    target_latency_ms=_TARGET_LATENCY_MS.value,
    buffer_count=_BUFFER_COUNT.value,
    test_query_count=_TEST_QUERY_COUNT.value,
    equal_issue=_EQUAL_ISSUE.value,
    warm_up=warm_up,
    warm_up_rest_secs=rest_secs,
    concurrency=_CONCURRENCY.value,
    silence_secs=_SILENCE_SECS.value
    or (_STARTED_SILENCE_SECS if watched else _RUNNING_SILENCE_SECS),
    user_conf_extra=extra,
  )


def _warm_up(default: bool) -> tuple[str, float]:
  """Returns the bursts of the warm-up, and the pause after it.

  Args:
    default: Whether to warm up if no flag says so.

  Raises:
    ValueError: There is a pause without a warm-up.
  """
  bursts, rest_secs = _WARM_UP.value, _WARM_UP_REST_SECS.value
  default = default and bursts is None
  if rest_secs is None:
    rest_secs = load_lib.WARM_UP_REST_SECS if default else 0.0
  elif not (bursts or default):
    raise ValueError(
      f'--warm_up_rest_secs={rest_secs} has no effect without a warm-up: give'
      f' --warm_up, such as --warm_up={load_lib.WARM_UP}, or leave it out'
    )
  return load_lib.WARM_UP if default else bursts or '', rest_secs
