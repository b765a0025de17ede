"""Creates entries for tests."""

from harness.results import entry


def make(**changes) -> entry.Entry:
  """Returns the entry of an Offline run, with some fields changed."""
  values: dict = dict(
    benchmark='gptj',
    model='gptj-99',
    scenario='Offline',
    round='v4.0',
    system='cell',
    parameters={'params': 'A', 'sample_count': 8},
    command=('./bazelw', 'run', '//harness:offline', '--', '--sample_count=8'),
    began='2026-01-01T00:00:00+00:00',
    ended='2026-01-01T00:01:00+00:00',
    accuracy=entry.Accuracy(
      {'rouge1': 40.5, 'rouge2': 20.25, 'rougeL': 30.0, 'gen_num': 8},
      "{'rouge1': 40.5, 'rouge2': 20.25, 'rougeL': 30.0, 'gen_num': 8}",
    ),
    performance=entry.Performance(
      True, 'samples_per_second', 8.5, 10.0, 85, latency_ns={'99.00': 1e9}
    ),
  )
  return entry.Entry(**(values | changes))
