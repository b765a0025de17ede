"""Formats the results of a run as plain rows, for --json and the plot."""

from collections.abc import Mapping

from benchmarks import contenders
from benchmarks import floor as floor_lib
from benchmarks import measure
from benchmarks import summary


def rows(
  result: measure.ModeResult,
  floors: Mapping[tuple[str, int], floor_lib.Floor],
  beams: int,
) -> list[dict]:
  """Returns one row per contender and number of requests.

  The figures are medians over the rounds.

  Args:
    result: The result of one mode.
    floors: The lower bounds by (name, requests).
    beams: The number of beams; 1 is greedy search.
  """
  ours = yardstick(result)
  result_rows = []
  for entry in result.entries:
    for count, samples in entry.samples.items():
      spread = summary.rates(samples)
      cpu = summary.median(samples, 'cpu_seconds')
      row = {
        'engine': entry.contender.engine,
        'dtype': entry.contender.dtype,
        'mode': result.mode,
        'beams': beams,
        'requests': count,
        'rounds': len(samples),
        'tokens': int(summary.median(samples, 'tokens')),
        'tokens_per_cpu_second': spread.median,
        'tokens_per_cpu_second_quartiles': [spread.low, spread.high],
        'tokens_per_cpu_second_extremes': [spread.least, spread.most],
        'cpu_seconds': cpu,
        'cpu_seconds_per_request': cpu / count,
        'wall_seconds': summary.median(samples, 'wall_seconds'),
        'peak_rss_bytes': int(summary.median(samples, 'peak_rss_bytes')),
        **entry.loaded,
      }
      if ours is not None:
        row['ours_over_this'] = summary.ratio(ours.samples[count], samples)
        row['ours'] = ours.contender.name
      floor = floors.get((entry.contender.name, count))
      if floor is not None:
        row['floor_cpu_seconds'] = floor.seconds
        row['times_floor'] = cpu / floor.seconds
        row['step_bytes'] = floor.step_bytes
      result_rows.append(row)
  return result_rows


def yardstick(result: measure.ModeResult) -> measure.Entry | None:
  """Returns our entry with the smallest dtype, which is the base of ratios."""
  for contender in contenders.ALL:
    if contender.engine == contenders.OURS and result.find(contender):
      return result.find(contender)
  return None
