"""Configures the compliance tests, and computes their verdicts.

TEST01 (BERT) repeats the performance run, and LoadGen logs the answers to some
of its samples. They must equal the answers of the accuracy run. This proves
that both runs used the same model. TEST05 (BERT until v4.1) repeats the
performance run with other seeds. TEST06 (Llama) answers 100 samples. Their
logged tokens must have the reported number and first token, and at most one end
id. The verdicts have the same lines as those of run_verification in
mlcommons/inference, because the checkers read them.
"""

from collections.abc import Collection, Mapping, Sequence
import dataclasses
import itertools
import json
import pathlib
from typing import Any

import numpy as np

from harness.loadgen import loadgen_log
from harness.rules import rounds
from saxml_ext.common import files

TEST01 = 'TEST01'
TEST05 = 'TEST05'
TEST06 = 'TEST06'

ACCURACY_VERDICT = 'verify_accuracy.txt'
PERFORMANCE_VERDICT = 'verify_performance.txt'
PASS = 'TEST PASS'
TOKENS_PASS = 'TEST06 verification complete'

# Scores of the test's answers, and of the accuracy run's answers to the same
# samples. They are required if the answers differ.
BASELINE_SCORE = 'baseline_accuracy.txt'
TEST_SCORE = 'compliance_accuracy.txt'
SCORES = (BASELINE_SCORE, TEST_SCORE)

# The number of hexadecimal digits of an answer's first value, a float32.
_FIRST = 8

_LOG_SEED = 720381539243781796
_LOGGED_SAMPLES = 4096
_TOKEN_SAMPLES = 100

_BOUND = 'effective_target_latency_ns'

# Up to these latencies in ns, runs may differ by a larger factor.
_SHORT_NS = {rounds.SINGLE_STREAM: 200_000, rounds.MULTI_STREAM: 1_600_000}
_TOLERANCE = {TEST01: 0.10, TEST05: 0.05}
_SHORT_TOLERANCE = 0.20


def audit_config(test: str) -> str:
  """Returns the audit.config for a test's run; empty if it needs none.

  Raises:
    ValueError: The test is unknown.
  """
  if test == TEST05:
    return ''  # Newer LoadGens ignore this file; see `attributes`.
  values = {'mode': 2, 'accuracy_log_rng_seed': _LOG_SEED}
  if test == TEST01:
    values['accuracy_log_sampling_target'] = _LOGGED_SAMPLES
  elif test == TEST06:
    values |= {
      'accuracy_log_sampling_target': _TOKEN_SAMPLES,
      'min_query_count': _TOKEN_SAMPLES,
      'min_duration': 0,
      'sample_concatenate_permutation': 0,
    }
  else:
    raise ValueError(f'{test} is unknown. Choose {TEST01}, {TEST05}, {TEST06}.')
  return ''.join(f'*.*.{key} = {value}\n' for key, value in values.items())


def attributes(test: str, round_name: str) -> Mapping[str, int]:
  """Returns the fields of TestSettings that a test's run changes.

  Raises:
    ValueError: The round does not have the test.
  """
  if test in (TEST01, TEST06):
    return {}
  seeds = rounds.ROUNDS[round_name].test05_seeds
  if test != TEST05 or seeds is None:
    raise ValueError(f'{round_name} has no {test}')
  return rounds.named_seeds(*seeds)


@dataclasses.dataclass(frozen=True)
class Verdict:
  """The outcome of a comparison.

  Attributes:
    text: The content of the file to submit.
    passed: True if the test passed.
  """

  text: str
  passed: bool


def verify_accuracy(
  accuracy_log: pathlib.Path, test_log: pathlib.Path
) -> Verdict:
  """Compares the logged answers of a TEST01 run with those of the accuracy run.

  Only the first values are compared, like in the official program with float32.

  Args:
    accuracy_log: The path of the accuracy run's mlperf_log_accuracy.json.
    test_log: The path of the test's mlperf_log_accuracy.json.

  Raises:
    OSError, ValueError: A log cannot be read.
  """
  accuracy, test = answers(accuracy_log), answers(test_log)
  known: dict[int, str] = {}
  repeated = unequal = 0
  for index, data in accuracy:
    if index in known:
      repeated += 1
      unequal += known[index] != data
    known.setdefault(index, data)
  matched = sum(index in known for index, _ in test)
  differ = sum(
    index in known and known[index][:_FIRST] != data[:_FIRST]
    for index, data in test
  )
  passed = matched > 0 and not differ
  return _verdict(
    passed,
    f'num_acc_log_entries = {len(accuracy)}',
    f'num_acc_log_duplicate_keys = {repeated}',
    f'num_acc_log_data_mismatch = {unequal}',
    f'num_perf_log_entries = {len(test)}',
    f'num_perf_log_qsl_idx_match = {matched}',
    f'num_perf_log_data_mismatch = {differ}',
    f'num_missing_qsl_idxs = {len(test) - matched}',
  )


def verify_tokens(
  log: pathlib.Path, scenario: str, end_ids: Collection[int]
) -> Verdict:
  """Checks the tokens that LoadGen logged in a TEST06 run.

  The official program knows one end id. This function counts all of the
  model's, and also fails without any answer or reported first token.

  Args:
    log: The path of the test's mlperf_log_accuracy.json.
    scenario: The name of the scenario. Offline reports no first tokens.
    end_ids: The ids that end an answer.

  Raises:
    OSError, ValueError: The log cannot be read.
  """
  skips = rounds.SCENARIOS[scenario].at_once
  # Offline logs have no token_data.
  reported_key = 'data' if skips else 'token_data'
  runs = [
    (_tokens(log, data), _tokens(log, first), count)
    for data, first, count in _read(log, 'data', reported_key, 'token_count')
  ]
  first = all(
    len(reported) and np.array_equal(tokens[: len(reported)], reported)
    for tokens, reported, _ in runs
  )
  ends = all(
    len(list(itertools.takewhile(lambda i: i in end_ids, tokens[::-1]))) <= 1
    for tokens, _, _ in runs
  )
  counts = all(len(tokens) == count for tokens, _, count in runs)
  passed = bool(runs) and (skips or first) and ends and counts
  return Verdict(
    f'First token check pass: {"Skipped" if skips else first}\n'
    f'EOS check pass: {ends}\n'
    f'Sample length check pass: {counts}\n'
    + (TOKENS_PASS if passed else 'TEST06 verification failed')
    + '\n',
    passed,
  )


def judge_tokens(
  directory: pathlib.Path, scenario: str, end_ids: Collection[int]
) -> Verdict:
  """Writes the verdict on a TEST06 run beside its logs, and returns it.

  Args:
    directory: The directory of LoadGen's logs.
    scenario: The name of the scenario.
    end_ids: The ids that end an answer.

  Raises:
    OSError, ValueError: The log cannot be read.
  """
  log = directory / loadgen_log.ACCURACY_LOG
  verdict = verify_tokens(log, scenario, end_ids)
  (directory / ACCURACY_VERDICT).write_text(verdict.text, 'utf-8')
  return verdict


def _tokens(path: pathlib.Path, data: str) -> np.ndarray:
  try:
    return np.frombuffer(bytes.fromhex(data), np.int32)
  except ValueError as error:
    raise ValueError(
      f'{path} has an answer that is not int32: {error}'
    ) from error


def verify_performance(
  test: str,
  scenario: str,
  performance: loadgen_log.RunLog,
  repeated: loadgen_log.RunLog,
) -> Verdict:
  """Compares the speed of a test's run with that of the performance run.

  Args:
    test: The name of the test.
    scenario: LoadGen's name of the scenario.
    performance: The log of the performance run.
    repeated: The log of the test's run.
  """
  for name, log in (('performance', performance), (test, repeated)):
    if not log.valid:
      return Verdict(f'TEST FAIL: the {name} run is not valid\n', False)
  rules = rounds.SCENARIOS[scenario]
  if rules.bounded:
    bounds = [log.values.get(_BOUND) for log in (performance, repeated)]
    if bounds[0] != bounds[1]:
      return Verdict(f'TEST FAIL: target latencies are {bounds}\n', False)
  key = rules.official_key
  reference, score = (
    float(str(log.values.get(key, 0))) for log in (performance, repeated)
  )
  if not reference or not score:
    return Verdict(f'TEST FAIL: no {key} in a log\n', False)
  tolerance = _TOLERANCE[test]
  if reference <= _SHORT_NS.get(scenario, -1):
    tolerance = _SHORT_TOLERANCE
  ratio = score / reference
  lowest, highest = 1 - tolerance, 1 + tolerance
  if test == TEST05:  # The test may be faster by any amount.
    if rules.streams:
      lowest = 0.0
    else:
      highest = float('inf')
  passed = lowest <= ratio <= highest
  return _verdict(
    passed, f'Reference score = {reference}', f'Test score = {score}'
  )


def write_baseline(
  accuracy_log: pathlib.Path, test_log: pathlib.Path, path: pathlib.Path
) -> int:
  """Writes the accuracy run's answers to the samples that a test logged.

  If answers differ in some bits, the scores of both logs show if they are
  equally good.

  Returns:
    The number of answers.

  Raises:
    OSError, ValueError: A log cannot be read.
  """
  indices = {index for index, _ in answers(test_log)}
  logged = files.read_json(accuracy_log, list[dict[str, Any]])
  kept = [item for item in logged if item['qsl_idx'] in indices]
  path.write_text(json.dumps(kept, indent=1) + '\n', encoding='utf-8')
  return len(kept)


def _verdict(passed: bool, *lines: str) -> Verdict:
  return Verdict(
    '\n'.join((*lines, PASS if passed else 'TEST FAIL', '')), passed
  )


def answers(path: pathlib.Path) -> Sequence[tuple[int, str]]:
  """Returns the index and hexadecimal data of each answer in an accuracy log.

  Raises:
    OSError, ValueError: The log cannot be read.
  """
  return _read(path, 'qsl_idx', 'data')


def _read(path: pathlib.Path, *keys: str) -> list[tuple[Any, ...]]:
  try:
    items = files.read_json(path, list[dict[str, Any]])
    return [tuple(item[key] for key in keys) for item in items]
  except (KeyError, ValueError) as error:
    raise ValueError(f'{path} is not an accuracy log: {error!r}') from error
