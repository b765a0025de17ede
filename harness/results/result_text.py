"""Formats the result of a job as text for the screen and for report.md."""

from collections.abc import Sequence
import os

from harness.loadgen import loadgen_log
from harness.results import judgement as judgement_lib
from harness.rules import rounds

FILE = 'report.md'


def render(
  judgement: judgement_lib.Judgement | None,
  performance: loadgen_log.RunLog | None,
  probes: Sequence[str] = (),
  hosts: str = '',
) -> str:
  """Returns the report of a job.

  Args:
    judgement: The scores of the accuracy run, or None if it was not run.
    performance: The log of the performance run, or None if it was not run.
    probes: The attempts of a search for the highest valid speed, one line each.
    hosts: The hosts that computed the model together, as text; '' for one host.
  """
  parts = []
  if probes:
    parts.append('\n'.join(('Search for the highest valid speed', '', *probes)))
  if performance is not None:
    parts.append(f'{performance.summary.rstrip()}\n\n{_duration(performance)}')
  if judgement is not None:
    parts.append(f'Accuracy\n\n{judgement.table}')
    if judgement.verdict:
      parts.append(judgement.verdict)
  if hosts:
    parts.append(hosts)
  return '\n\n'.join(parts) + '\n'


def write(results_dir: str, scenario: str, text: str) -> str:
  """Writes report.md with the text under a heading, and returns its path."""
  path = os.path.join(results_dir, FILE)
  with open(path, 'w', encoding='utf-8') as file:
    file.write(f'# MLPerf {scenario}\n\n```\n{text}```\n')
  return path


def _duration(performance: loadgen_log.RunLog) -> str:
  """Returns the duration of the run and the minimum in the rules, as text."""
  official = rounds.MIN_DURATION_MS / 1000
  if performance.seconds >= official:
    return (
      f'This run lasted {performance.seconds:.1f} s; the rules ask for at'
      f' least {official:.0f} s.'
    )
  return (
    f'This run lasted {performance.seconds:.1f} s, where the rules ask for at'
    f' least {official:.0f} s:\nLoadGen judged it by its own min_duration, so'
    ' it is no official result.'
    f'\n--min_duration={rounds.MIN_DURATION_MS} makes a run of that'
    ' length.'
  )
