"""Checks of closed submissions: the rules that the official checkers leave out."""

from collections.abc import Iterator
import pathlib

from harness.loadgen import loadgen_log
from harness.results import entry as entry_lib
from harness.rules import requirements
from harness.rules import rounds
from harness.submission import job_result
from harness.submission import plan
from harness.submission.checks import consistency
from harness.submission.checks import log_checks
from harness.submission.content import compliance
from harness.submission.content import serving


def problems(submission: plan.Submission) -> Iterator[str]:
  """What is wrong with a closed submission besides what every one is asked."""
  yield from _scenarios(submission)
  yield from _network(submission)
  for result in submission.results:
    entry = result.entry
    name = result.name
    yield from _full_set(result, name)
    yield from _targets(result, name)
    if entry.benchmark == rounds.GPTJ:
      if not result.truncated:  # A tree does not hold the parameters.
        yield from _search(entry, name)
      yield from _equal_issue(submission, result, name)
    yield from _compliance(submission, result, name)
    kind = submission.measured(result)['weight_data_types'] or ''
    if submission.calibration is None and kind.startswith('int'):
      if requirements.needs_calibration(submission.round, submission.division):
        yield (
          f'{name}: {submission.round} asks how {kind} weights were calibrated;'
          ' give a page that says so by --calibration'
        )


def _network(submission: plan.Submission) -> Iterator[str]:
  """Yields what the Network division asks for, and no other division takes."""
  wanted = submission.division == requirements.NETWORK
  for result in submission.results:
    if log_checks.over_network(result) == wanted:
      continue
    if wanted:
      yield (
        f'{result.name}: LoadGen did not log the system as a'
        f' "{requirements.NETWORK_SUT}" in both runs, which the Network division'
        ' asks for; run it with --network=lon'
      )
    else:
      yield (
        f'{result.name} was run over a network; submit it with'
        ' --division=network'
      )
  if wanted and submission.category != requirements.DATACENTER:
    yield (
      f'the Network division has no category {submission.category}; give'
      ' --category=datacenter'
    )
  if wanted and submission.diagram is None:
    yield (
      'the Network division asks for a diagram that shows how the LoadGen node'
      ' and the nodes of the system are joined; give it by --system_diagram'
    )


def _scenarios(submission: plan.Submission) -> Iterator[str]:
  had: dict[str, set[str]] = {}
  for result in submission.results:
    had.setdefault(result.entry.model, set()).add(result.entry.scenario)
  for model, scenarios in had.items():
    asked = requirements.scenarios(submission.round, submission.category, model)
    if not asked:
      continue  # Told already.
    missing = [each for each in asked if each not in scenarios]
    if missing:
      yield (
        f'{model} lacks {", ".join(missing)}: the category'
        f' {submission.category} of {submission.round} asks for'
        f' {", ".join(asked)}'
      )
    other = sorted(scenarios - set(asked))
    if other:
      yield (
        f'{model}: {", ".join(other)} is no scenario of the category'
        f' {submission.category} of {submission.round}'
      )


def _full_set(result: job_result.JobResult, name: str) -> Iterator[str]:
  full = rounds.FULL_SET[result.entry.benchmark]
  for run, log in (
    ('accuracy', result.accuracy),
    ('performance', result.performance),
  ):
    total = log and log.values.get('qsl_reported_total_count')
    if log and total != full:
      yield (
        f'{name}: the {run} run had {total} samples; closed asks for the whole'
        f' set of {full}'
      )
  answered = _answered(result)
  if answered is not None and answered != full:
    yield (
      f'{result.accuracy_dir / loadgen_log.ACCURACY_LOG} holds answers to'
      f' {answered} samples; closed asks for {full}'
    )
  scored = result.entry.accuracy
  if result.entry.benchmark == rounds.GPTJ and scored:
    count = scored.metrics.get('gen_num')
    if count != full:
      yield f'{name}: {count} answers were scored, closed asks for {full}'


def _answered(result: job_result.JobResult) -> int | None:
  """How many samples an accuracy log answers, if LoadGen saw them all."""
  full = rounds.FULL_SET[result.entry.benchmark]
  log = result.accuracy
  if result.truncated:
    return None
  if log is None or log.values.get('qsl_reported_total_count') != full:
    return None  # Told already.
  path = result.accuracy_dir / loadgen_log.ACCURACY_LOG
  return len({index for index, _ in compliance.answers(path)})


def _targets(result: job_result.JobResult, name: str) -> Iterator[str]:
  """Yields figures of accuracy.txt that are below the model's targets."""
  if result.entry.accuracy is None or not result.accuracy_text.is_file():
    return
  text = result.accuracy_text.read_text(encoding='utf-8')
  for metric, least in requirements.ACCURACY.get(
    result.entry.model, {}
  ).items():
    found = log_checks.figure(text, metric)
    if found is None:
      continue  # Told already.
    if found < least:
      yield (
        f'{name}: {metric} is {found:g}, {result.entry.model} asks for at least'
        f' {least:.10g}'
      )


def _search(entry: entry_lib.Entry, name: str) -> Iterator[str]:
  beams = serving.beams(entry)
  if beams is None:
    yield (
      f'{name} does not tell its beam size, which must be'
      f' {requirements.BEAM_SIZE}: run it with a system that the harness starts'
    )
  elif beams != requirements.BEAM_SIZE:
    yield (
      f'{name} was searched with {beams} beams; closed asks for'
      f' {requirements.BEAM_SIZE}'
    )
  if serving.prefix_cache(entry):
    yield (
      f'{name} was run with PRECOMPUTE_KV_CACHE_PREFIX: the rules ask that every'
      ' query is computed in full'
    )


def _equal_issue(
  submission: plan.Submission, result: job_result.JobResult, name: str
) -> Iterator[str]:
  rules = rounds.ROUNDS[submission.round]
  asked = rules.must_issue_equally(
    result.entry.benchmark, result.entry.scenario
  )
  log = result.performance
  if asked and log:
    value = log.values.get('effective_sample_concatenate_permutation')
    if not value:
      yield (
        f'{name}: samples were not issued equally often, which'
        f' {submission.round} asks for (sample_concatenate_permutation)'
      )


def _compliance(
  submission: plan.Submission, result: job_result.JobResult, name: str
) -> Iterator[str]:
  for test in submission.compliance_tests(result):
    log = result.compliance.get(test)
    if log is None:
      yield (
        f'{name} has no {test}: closed results of {result.entry.model} need its'
        f' logs in {result.compliance_dir(test)}; run it with'
        ' --mode=accuracy,performance,compliance'
      )
      continue
    if result.performance is None or result.accuracy is None:
      continue  # Told already.
    yield from _test(submission, result, log, test, f'{name}, {test}')


def _test(
  submission: plan.Submission,
  result: job_result.JobResult,
  log: loadgen_log.RunLog,
  test: str,
  name: str,
) -> Iterator[str]:
  yield from consistency.problems(log, result.entry.scenario, name)
  yield from log_checks.settings(
    submission.round, submission.division, result, log, name
  )
  if test == compliance.TEST05:
    seeds = dict(compliance.attributes(test, submission.round))
  else:
    seeds = rounds.ROUNDS[submission.round].seeds
  yield from log_checks.wrong_seeds(log, seeds, name)
  assert result.performance is not None
  speed = compliance.verify_performance(
    test, result.entry.scenario, result.performance, log
  )
  if not speed.passed:
    yield f'{name} failed: {", ".join(speed.text.splitlines())}'
  if test != compliance.TEST01 or result.same_answers(test):
    return
  directory = result.scores_dir(test)
  absent = [n for n in compliance.SCORES if not (directory / n).is_file()]
  if absent:
    yield (
      f'{name}: answers differ from those of the accuracy run, so'
      f' {" and ".join(absent)} must stand in {directory}: the scores of'
      ' the accuracy run and of the test for the samples that the test logged'
    )
    return
  yield from _scores(result.entry.model, directory, name)


def _scores(model: str, directory: pathlib.Path, name: str) -> Iterator[str]:
  """Scores of a test that are too far from those of the accuracy run."""
  percent = requirements.TEST_PERCENT[model]
  for metric in requirements.ACCURACY[model]:
    baseline, test = (
      log_checks.figure((directory / each).read_text('utf-8'), metric)
      for each in compliance.SCORES
    )
    if not baseline or not test or abs(1 - baseline / test) * 100 > percent:
      yield (
        f'{name}: {metric} of its answers is {test}, of the accuracy run'
        f' {baseline}; they may differ by {percent:g} %'
      )
