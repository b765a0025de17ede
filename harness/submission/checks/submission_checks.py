"""Checks a submission with our own rules before any file is written.

These checks are stricter than the official checkers. Up to v5.0, the official
checkers accept a closed tree with a hundred articles. Here a closed tree must
follow every rule that the logs can show. All problems are reported together.
"""

from collections.abc import Iterator
import pathlib

from harness.benchmarks import all as benchmarks
from harness.loadgen import compliance
from harness.loadgen import loadgen_log
from harness.results import job_result
from harness.rules import requirements
from harness.rules import rounds
from harness.submission import endpoints_report
from harness.submission import plan
from harness.submission.checks import consistency
from harness.submission.checks import log_checks
from harness.submission.content import descriptions


def problems(submission: plan.Submission) -> list[str]:
  """Returns all problems of a submission."""
  if not submission.results and not submission.reports:
    return ['There are no results to submit. Pass --result.']
  texts = list(_whole(submission))
  for result in submission.results:
    texts += _result(submission, result)
  for report in submission.reports:
    texts += endpoints_report.problems(
      *(report, submission.round, submission.division, submission.category)
    )
    measured = submission.measured_for(report)
    texts += descriptions.measurement_problems(measured, report.name)
  if requirements.is_closed(submission.division):
    texts += _closed(submission)
  return texts


def notes(submission: plan.Submission) -> list[str]:
  """Returns the short accuracy runs, which need an option of the checker."""
  texts = [
    log_checks.short_set(submission, result) for result in submission.results
  ]
  texts += map(endpoints_report.short_set, submission.reports)
  return [note for note in texts if note]


def _whole(submission: plan.Submission) -> Iterator[str]:
  for name, value in (
    ('--submitter', submission.submitter),
    ('--system_name', submission.system),
    ('--model_name', submission.model_name or 'none'),
  ):
    if not value or descriptions.system_id(value) != value:
      yield (
        f'{name} {value!r} cannot be a folder name. Use letters, digits, dots,'
        ' dashes and underscores.'
      )
  yield from descriptions.system_problems(submission.system_description)
  yield from _one_system(submission)
  yield from _models(submission)
  seen: dict[tuple[str, str], pathlib.Path] = {}
  for model, scenario, directory in (
    *(
      (r.entry.model, r.entry.scenario, r.directory) for r in submission.results
    ),
    *((r.model, r.scenario, r.directory) for r in submission.reports),
  ):
    if other := seen.get((model, scenario)):
      yield (
        f'{other} and {directory} are both {model} {scenario}. Pass only one of'
        ' them.'
      )
    seen[model, scenario] = directory


def _one_system(submission: plan.Submission) -> Iterator[str]:
  """Yields a problem if the results describe different systems."""
  systems: dict[str, set[str]] = {}
  for result in submission.results:
    for key, value in result.entry.description.items():
      systems.setdefault(key, set()).add(str(value))
  unlike = [
    f'{key} ({" / ".join(sorted(values))})'
    for key, values in systems.items()
    if len(values) > 1 and key not in submission.description
  ]
  if unlike:
    yield (
      f'The results describe different systems: {", ".join(unlike)}. Submit'
      ' them separately, or pass the common values in --system_description.'
    )


def _models(submission: plan.Submission) -> Iterator[str]:
  models = submission.models
  if submission.model_name and requirements.is_closed(submission.division):
    yield (
      f'A {submission.division} submission cannot have a --model_name, because'
      ' its model is the benchmark itself.'
    )
  if submission.model_name and len(models) > 1:
    yield (
      '--model_name applies to one model, but the results are of'
      f' {", ".join(models)}. Submit them separately.'
    )
  for model in models:
    benchmark = benchmarks.MODELS.get(model)
    names: tuple[str, ...] = ()
    if benchmark:
      names = benchmark.rounds_of(submission.category, model)
    if submission.round in names:
      continue
    other = next(
      name for name in requirements.CATEGORIES if name != submission.category
    )
    yield (
      f'{submission.round} has no {model} in the category'
      f' {submission.category}.'
      + (f' These rounds have it: {", ".join(names)}.' if names else '')
      + (
        f' Pass --category={other}.'
        if benchmark and benchmark.required(submission.round, other, model)
        else ''
      )
    )


def _result(
  submission: plan.Submission, result: job_result.JobResult
) -> Iterator[str]:
  """Yields the problems of a result that apply to every division."""
  name, entry = result.name, result.entry
  if entry.round != submission.round:
    yield (
      f'{name} was run with the rules of {entry.round}, not'
      f' {submission.round}. Pass --round={entry.round}, or run it again with'
      f' --round={submission.round}.'
    )
  if not result.user_conf.is_file():
    yield f'{name} has no user.conf. Run it again.'
  measured = submission.measured(result)
  yield from descriptions.measurement_problems(measured, name)
  yield from log_checks.accuracy(submission, result)
  yield from log_checks.performance(submission, result)
  is_network = submission.system_description.get('is_network')
  if (
    submission.division != requirements.CLOSED
    and log_checks.over_network(result)
    and str(is_network).lower() != 'true'
  ):
    yield (
      f'{name} was run over a network. Its system description must have'
      ' "is_network": "True" and the network fields.'
    )
  if entry.scenario not in rounds.SCENARIOS:
    yield f'{name}: {entry.scenario} is not a scenario.'


def _closed(submission: plan.Submission) -> Iterator[str]:
  """Yields violations of closed rules that official checkers do not check."""
  yield from _scenarios(submission)
  yield from _network(submission)
  for result in submission.results:
    yield from _full_set(result)
    yield from _targets(result)
    # A tree has no parameters.
    if result.benchmark.summarizes and not result.truncated:
      yield from _search(result)
    yield from _equal_issue(submission, result)
    yield from _compliance(submission, result)
    kind = submission.measured(result)['weight_data_types'] or ''
    if (
      submission.calibration is None
      and kind.startswith('int')
      and requirements.needs_calibration(submission.round, submission.division)
    ):
      yield (
        f'{result.name}: {submission.round} requires a description of how'
        f' {kind} weights were calibrated. Pass it as --calibration.'
      )


def _network(submission: plan.Submission) -> Iterator[str]:
  """Yields problems of runs over a network, and of the Network division."""
  expected = submission.division == requirements.NETWORK
  for result in submission.results:
    if log_checks.over_network(result) == expected:
      continue
    if expected:
      yield (
        f'{result.name}: LoadGen did not log the system as a'
        f' "{requirements.NETWORK_SUT}" in both runs, but the Network division'
        ' requires it. Run it with --network=lon.'
      )
    else:
      yield (
        f'{result.name} was run over a network. Submit it with'
        ' --division=network.'
      )
  if expected and submission.category != requirements.DATACENTER:
    yield (
      f'The Network division has no category {submission.category}. Pass'
      ' --category=datacenter.'
    )
  if expected and submission.diagram is None:
    yield (
      'The Network division requires a diagram of the connections between the'
      ' LoadGen node and the nodes of the system. Pass it as --system_diagram.'
    )


def _scenarios(submission: plan.Submission) -> Iterator[str]:
  by_model: dict[str, set[str]] = {}
  for result in submission.results:
    by_model.setdefault(result.entry.model, set()).add(result.entry.scenario)
  where = f'category {submission.category} of {submission.round}'
  for model, scenarios in by_model.items():
    rules = submission.round, submission.category, model
    benchmark = benchmarks.MODELS.get(model)
    known = benchmark.required(*rules) if benchmark else ()
    if not benchmark or not known:
      continue  # This was already reported.
    if missing := benchmark.lacking(scenarios, *rules):
      required = benchmark.lacking((), *rules)
      yield (
        f'{model} lacks {", ".join(missing)}. The {where} requires'
        f' {", ".join(required)}.'
      )
    if other := sorted(scenarios - set(known)):
      yield f'{model}: {", ".join(other)} is not a scenario of the {where}.'


def _full_set(result: job_result.JobResult) -> Iterator[str]:
  name, full = result.name, result.benchmark.full_set
  for run, log in (
    ('accuracy', result.accuracy),
    ('performance', result.performance),
  ):
    total = log and log_checks.covered(log)
    if log and total != full:
      yield (
        f'{name}: The {run} run had {total} samples, but closed requires the'
        f' whole set of {full}.'
      )
    elif log and log is result.accuracy and not result.truncated:
      path = result.accuracy_dir / loadgen_log.ACCURACY_LOG
      yield from log_checks.int32(result, path)
      answered = len({index for index, _ in compliance.answers(path)})
      if answered != full:
        yield (
          f'{path} has answers to {answered} samples, but closed requires'
          f' {full}.'
        )
  scored = result.entry.accuracy
  if result.benchmark.summarizes and scored:
    count = scored.metrics.get('gen_num')
    if count != full:
      yield f'{name}: {count} answers were scored, but closed requires {full}.'


def _targets(result: job_result.JobResult) -> Iterator[str]:
  """Yields the figures of accuracy.txt that miss the model's targets."""
  if result.entry.accuracy is None or not result.accuracy_text.is_file():
    return
  text, model = result.accuracy_text.read_text('utf-8'), result.entry.model
  figures = {
    metric: log_checks.figure(text, metric)  # None was already reported.
    for metric in result.benchmark.least(model)
  }
  for metric, value, bound in result.benchmark.missed(model, figures):
    yield (
      f'{result.name}: {metric} is {value:g}, but {model} requires {bound}.'
    )


def _search(result: job_result.JobResult) -> Iterator[str]:
  beams = descriptions.beams(result.entry)
  required = result.benchmark.search.beams
  if beams is None:
    yield (
      f'{result.name} does not record its beam size, which must be {required}.'
      ' Run it with a system that the harness starts.'
    )
  elif beams != required:
    yield f'{result.name} used {beams} beams, but closed requires {required}.'
  elif required == 1 and descriptions.attribute(result.entry, 'TEMPERATURE'):
    yield (
      f'{result.name} sampled its answers, but closed requires greedy search.'
      ' Run it with TEMPERATURE=0.0.'
    )
  if descriptions.prefix_cache(result.entry):
    yield (
      f'{result.name} was run with PRECOMPUTE_KV_CACHE_PREFIX, but the rules'
      ' require that every query is computed in full.'
    )


def _equal_issue(
  submission: plan.Submission, result: job_result.JobResult
) -> Iterator[str]:
  required = result.benchmark.must_issue_equally(
    submission.round, result.entry.scenario
  )
  log = result.performance
  key = 'effective_sample_concatenate_permutation'
  if required and log and not log.values.get(key):
    yield (
      f'{result.name}: Samples were not issued equally often, but'
      f' {submission.round} requires it (sample_concatenate_permutation).'
    )


def _compliance(
  submission: plan.Submission, result: job_result.JobResult
) -> Iterator[str]:
  for test in submission.compliance_tests(result):
    log = result.compliance.get(test)
    if not result.has_test(test):
      yield (
        f'{result.name} has no {test}. Closed results of {result.entry.model}'
        f' need its logs in {result.compliance_dir(test)}. Run it with'
        ' --mode=accuracy,performance,compliance.'
      )
    elif test == compliance.TEST06:
      verdict = result.tokens_verdict()
      if not verdict.passed:
        lines = ', '.join(verdict.text.splitlines())
        yield f'{result.name}, {test} failed: {lines}'
    elif log and result.performance and result.accuracy:  # Or was reported.
      name = f'{result.name}, {test}'
      yield from consistency.problems(
        log, result.benchmark, result.entry.scenario, name
      )
      yield from log_checks.settings(submission, result, log, name)
      yield from _test(submission.round, result, log, test, name)


def _test(
  round_name: str,
  result: job_result.JobResult,
  log: loadgen_log.RunLog,
  test: str,
  name: str,
) -> Iterator[str]:
  assert result.performance is not None
  seeds = rounds.ROUNDS[round_name].seeds
  if test == compliance.TEST05:
    seeds = dict(compliance.attributes(test, round_name))
  yield from log_checks.wrong_seeds(log, seeds, name)
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
      f'{name}: The answers differ from those of the accuracy run, so'
      f' {directory} must have {" and ".join(absent)}. These are the scores of'
      ' the accuracy run and of the test for the samples that the test logged.'
    )
  else:
    yield from _scores(result, directory, name)


def _scores(
  result: job_result.JobResult, directory: pathlib.Path, name: str
) -> Iterator[str]:
  """Yields test scores that differ too much from the accuracy run's."""
  percent = result.benchmark.test_percent[result.entry.model]
  for metric in result.benchmark.least(result.entry.model):
    baseline, test = (
      log_checks.figure((directory / file).read_text('utf-8'), metric)
      for file in compliance.SCORES
    )
    if not baseline or not test or abs(1 - baseline / test) * 100 > percent:
      yield (
        f'{name}: {metric} is {test} for the answers of the test and'
        f' {baseline} for those of the accuracy run. They may differ by at'
        f' most {percent:g} %.'
      )
