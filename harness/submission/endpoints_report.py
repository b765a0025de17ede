"""Reads and checks the report of a run of MLPerf Endpoints.

Since v6.1, the official checker accepts the report of the client of
mlcommons/endpoints in place of LoadGen's logs.
"""

from collections.abc import Iterator, Mapping
import dataclasses
import pathlib
from typing import Any

import yaml

from harness.benchmarks import all as benchmarks
from harness.rules import requirements
from harness.rules import rounds
from saxml_ext.common import files

CONFIG = 'config.yaml'
_SUMMARY = 'performance/result_summary.json'
_ACCURACY = 'accuracy/accuracy_results.json'
FILES = (CONFIG, _SUMMARY, _ACCURACY)

# The first round that accepts reports.
_FIRST = 'v6.1'
_NS_PER_MS = 1_000_000
_RUNTIME = ('settings', 'runtime')


@dataclasses.dataclass(frozen=True)
class Report:
  """A report.

  Attributes:
    model: The submitted name of the model.
    scenario: The name of the scenario.
    directory: The directory that the client wrote.
    config: The content of config.yaml.
    summary: The content of performance/result_summary.json.
    accuracy: The content of accuracy/accuracy_results.json.
  """

  model: str
  scenario: str
  directory: pathlib.Path
  config: Mapping[str, Any]
  summary: Mapping[str, Any]
  accuracy: Mapping[str, Any]

  @property
  def name(self) -> str:
    """The name of the report in messages."""
    return f'{self.model} {self.scenario} ({self.directory})'

  @property
  def scored(self) -> int:
    """The number of scored samples."""
    scores = self.accuracy.get('accuracy_scores') or []
    return sum(int(score.get('total_samples') or 0) for score in scores)


def read(model: str, scenario: str, directory: pathlib.Path) -> Report:
  """Reads the report in a directory.

  Raises:
    OSError: A file cannot be read.
    ValueError: A file is malformed.
  """
  path = directory / CONFIG
  try:
    config = yaml.safe_load(path.read_text('utf-8'))
  except yaml.YAMLError as error:
    raise ValueError(f'{path} is not a YAML file: {error}') from error
  if not isinstance(config, dict):
    raise ValueError(f'{path} has no settings.')
  return Report(
    model,
    scenario,
    directory,
    config,
    files.read_json(directory / _SUMMARY, dict[str, Any]),
    files.read_json(directory / _ACCURACY, dict[str, Any]),
  )


def problems(
  report: Report, round_name: str, division: str, category: str
) -> Iterator[str]:
  """Yields the reasons why a report cannot be submitted."""
  name, benchmark = report.name, benchmarks.MODELS.get(report.model)
  if not rounds.is_at_least(round_name, _FIRST):
    yield (
      f'{name}: {round_name} has no runs of MLPerf Endpoints. Pass'
      f' --round={_FIRST}.'
    )
    return
  if division != requirements.OPEN:
    yield f'{name}: This program submits reports only to the open division.'
  known: tuple[str, ...] = ()
  if benchmark:
    known = benchmark.required(round_name, category, report.model)
  if not benchmark or not benchmark.uses_tokens or report.scenario not in known:
    yield (
      f'{name}: The category {category} of {round_name} has no such run.'
      f' {", ".join(known) or "No scenario"} of {report.model} can be'
      ' submitted.'
    )
    return
  seeds = rounds.ROUNDS[round_name]
  for path, expected in (
    (('type',), 'offline' if report.scenario == rounds.OFFLINE else 'online'),
    ((*_RUNTIME, 'dataloader_random_seed'), seeds.sample_seed),
    ((*_RUNTIME, 'scheduler_random_seed'), seeds.schedule_seed),
  ):
    value = _get(report.config, *path)
    if value != expected:
      yield (
        f'{name}: {".".join(path)} of {CONFIG} is {value}, but it must be'
        f' {expected}.'
      )
  duration = _get(report.config, *_RUNTIME, 'min_duration_ms') or 0
  if duration < rounds.MIN_DURATION_MS:
    yield (
      f'{name}: min_duration_ms was {duration}, but the rules require'
      f' {rounds.MIN_DURATION_MS}.'
    )
  failed = report.summary.get('n_samples_failed')
  if failed != 0 or not report.summary.get('complete'):
    yield f'{name}: {failed} samples failed, or the run did not end.'
  scores = report.accuracy.get('accuracy_scores') or [{}]
  if any(score.get('score') is None for score in scores):
    yield f'{name}: {_ACCURACY} has no score.'
  if limits := benchmark.token_limits.get(report.scenario):
    for key, limit in (('ttft', limits.ttft_ms), ('tpot', limits.tpot_ms)):
      value = _get(report.summary, key, 'early_stopping_percentiles', '99.0')
      if value and value < limit * _NS_PER_MS:
        continue
      estimate = (
        f'{value / _NS_PER_MS:,.1f} ms'
        if value
        else 'missing, as in runs of fewer than 662 samples'
      )
      yield (
        f'{name}: The 99th percentile of {key.upper()} by early stopping is'
        f' {estimate}, but {report.scenario} requires less than {limit:g} ms.'
      )


def short_set(report: Report) -> str | None:
  """Returns a note if too few samples were scored for the checker."""
  full = benchmarks.MODELS[report.model].full_set
  if report.scored == full:
    return None
  return (
    f'{report.name}: {report.scored} samples were scored, but the checker'
    f' expects all {full} samples of the set. It accepts an open result only'
    f' with {requirements.SKIP_SET_SIZE}.'
  )


def _get(record: Any, *path: str) -> Any:
  """Returns a value of nested dictionaries, or None if it is missing."""
  for key in path:
    record = record.get(key) if isinstance(record, dict) else None
  return record
