"""Our own checks of a submission, before anything of it is written.

They are stricter than the official checkers, which up to v5.0 take a closed
tree of a hundred articles: here a closed tree must keep every rule that the logs
can show. All problems are told at once.
"""

from collections.abc import Iterator

from harness.rules import requirements
from harness.rules import rounds
from harness.submission import job_result
from harness.submission import plan
from harness.submission.checks import closed_checks
from harness.submission.checks import log_checks
from harness.submission.content import measurement
from harness.submission.content import system_json


def problems(submission: plan.Submission) -> list[str]:
  """Everything that is wrong with a submission; empty if nothing is."""
  found = list(_whole(submission))
  for result in submission.results:
    found += _result(submission, result)
  if requirements.is_closed(submission.division):
    found += closed_checks.problems(submission)
  return found


def _whole(submission: plan.Submission) -> Iterator[str]:
  if not submission.results:
    yield 'there is no result to submit: give --result'
    return
  for name, value in (
    ('--submitter', submission.submitter),
    ('--system_name', submission.system),
    ('--model_name', submission.model_name or 'none'),
  ):
    if not value or system_json.system_id(value) != value:
      yield (
        f'{name} {value!r} cannot name a folder; use letters, digits, dots,'
        ' dashes and underscores'
      )
  yield from system_json.problems(submission.system_description)
  yield from _one_system(submission)
  yield from _models(submission)
  seen: dict[tuple[str, str], job_result.JobResult] = {}
  for result in submission.results:
    key = (result.entry.model, result.entry.scenario)
    if key in seen:
      yield (
        f'{seen[key].directory} and {result.directory} are both'
        f' {" ".join(key)}; give one of them'
      )
    seen[key] = result


def _one_system(submission: plan.Submission) -> Iterator[str]:
  """Keys in which the results describe different systems."""
  found: dict[str, set[str]] = {}
  for result in submission.results:
    for key, value in result.entry.description.items():
      found.setdefault(key, set()).add(str(value))
  unlike = {
    key: values
    for key, values in found.items()
    if len(values) > 1 and key not in submission.description
  }
  if unlike:
    texts = (f'{key} ({" / ".join(sorted(unlike[key]))})' for key in unlike)
    yield (
      f'the results describe different systems: {", ".join(texts)}; submit them'
      ' one by one, or say by --system_description what holds for all'
    )


def _models(submission: plan.Submission) -> Iterator[str]:
  models = {result.entry.model for result in submission.results}
  if submission.model_name:
    if requirements.is_closed(submission.division):
      yield (
        f'a {submission.division} submission has no --model_name: it is the'
        ' benchmark itself'
      )
    if len(models) > 1:
      yield (
        f'--model_name names one model, the results are of'
        f' {", ".join(sorted(models))}: submit them one by one'
      )
  for model in sorted(models):
    if requirements.scenarios(submission.round, submission.category, model):
      continue
    names = requirements.rounds_of(submission.category, model)
    yield (
      f'{submission.round} has no {model} in the category'
      f' {submission.category}'
      + (f'; these rounds have it: {", ".join(names)}' if names else '')
    )


def _result(
  submission: plan.Submission, result: job_result.JobResult
) -> Iterator[str]:
  """What is wrong with a result in any division."""
  name = result.name
  entry = result.entry
  if entry.round != submission.round:
    yield (
      f'{name} was run by the rules of {entry.round}, not {submission.round}:'
      f' give --round={entry.round}, or run it again with'
      f' --round={submission.round}'
    )
  if not result.user_conf.is_file():
    yield f'{name} has no user.conf; run it again'
  yield from measurement.problems(submission.measured(result), name)
  yield from log_checks.accuracy(submission, result, name)
  yield from log_checks.performance(submission, result, name)
  is_network = submission.system_description.get('is_network')
  if (
    submission.division != requirements.CLOSED
    and log_checks.over_network(result)
    and str(is_network).lower() != 'true'
  ):
    yield (
      f'{name} was run over a network: its system description must say'
      ' "is_network": "True" and the fields that go with it'
    )
  if entry.scenario not in rounds.SCENARIOS:
    yield f'{name}: {entry.scenario} is no scenario'
