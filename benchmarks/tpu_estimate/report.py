"""Estimates the serving speed of compiled programs from their costs alone.

Nothing runs on a TPU here, so every figure of speed is an estimate. The report
prints the rule of the estimates, and also applies it to Sax's published
configuration.
"""

from collections.abc import Sequence
import pathlib

from absl import flags

from benchmarks.tpu_estimate import benchmarks
from benchmarks.tpu_estimate import chips
from benchmarks.tpu_estimate import lengths as lengths_lib
from benchmarks.tpu_estimate import page
from benchmarks.tpu_estimate import predict
from benchmarks.tpu_estimate import rules
from benchmarks.tpu_estimate import tables
from benchmarks.tpu_estimate.compiled import costs
from benchmarks.tpu_estimate.compiled import hlo_costs
from saxml_ext.common import flag_rules
from saxml_ext.common import program
from saxml_ext.common import user_path

_DATA = pathlib.Path(__file__).parent / 'data'
# The buckets of the stored costs of Sax's programs.
_SAX = (512, 1024, 1919)

_COSTS = flags.DEFINE_list(
  'costs',
  [],
  'Files of //benchmarks/tpu_estimate/compiled:compile_costs, oldest first. The'
  ' report compares all and describes the last one. Those in data/ are kept.'
  ' Default: data/engine.json, of GPT-J 6B.',
)
_PROGRAMS = flags.DEFINE_string(
  'programs',
  None,
  'The directory of a TPU program set, which the report then describes.',
)
_LENGTHS = flags.DEFINE_string(
  'lengths',
  None,
  'A file of //benchmarks/tpu_estimate:count_lengths with the lengths of prompts'
  ' and answers. Default: the distribution that the report describes.',
)
_BUCKETS = flags.DEFINE_list(
  'buckets',
  [],
  'The lengths to which prompts are padded, if they differ from those of the'
  ' compiled programs. Times between compiled lengths are interpolated.',
)
_SAMPLES = flags.DEFINE_integer(
  'samples', 13368, 'The number of simulated requests.', lower_bound=1
)
_SERVER = flags.DEFINE_bool(
  'server', True, 'Also estimate the Server scenario, which takes a minute.'
)
_INTERVAL = flags.DEFINE_integer(
  'stream_interval',
  None,
  "The decode steps between two messages of a stream, the served model's"
  ' STREAM_INTERVAL_STEPS. Default: 1.',
  lower_bound=1,
)
flag_rules.act_only(
  'without --noserver', lambda: _SERVER.value, 'stream_interval'
)
_PAGE = flags.DEFINE_string('page', None, 'The HTML file to write.')

_RULE = """\
Rule. Seconds of a program = max(work, memory) + exchange. Work: XLA's estimate
of cycles (at {clock:.1f} GHz), with each loop times its trips, and the branch
with most cycles of a conditional. For a Pallas kernel, its bundles, or its
operands' bytes over the memory's bandwidth if that is longer. For an operation
without an estimate, the same bytes over the bandwidth. Memory: all bytes to and
from HBM ({hbm:.0f} GB/s). Exchange: collectives one after the other in a ring
({link:.0f} GB/s per link and direction). The network and jitter are left out.
docs/aot_report.md gives the source of each term:"""


def main(argv: Sequence[str]) -> None:
  del argv
  with program.exit_on('report'):
    print(report())


def report() -> str:
  """Returns the text of the report, and writes the page if requested.

  Raises:
    OSError: A file cannot be read or written.
    ValueError: A file is malformed.
  """
  sets = [costs.read(user_path.resolve(path)) for path in _COSTS.value]
  if _PROGRAMS.value is not None:
    folder = pathlib.Path(user_path.resolve(_PROGRAMS.value))
    sets.append(hlo_costs.read_set(folder))
  sets = sets or [costs.read(_DATA / 'engine.json')]
  made = sets[-1]
  benchmark = benchmarks.find(made)
  if _INTERVAL.value and not benchmark.counts_tokens:
    raise ValueError(
      f'--stream_interval is {_INTERVAL.value}, but has no effect for'
      f' {made.title}, whose benchmark has no bounds on tokens. Omit the flag.'
    )
  requests = benchmark.lengths.draw(_SAMPLES.value)
  if _LENGTHS.value is not None:
    path = pathlib.Path(user_path.resolve(_LENGTHS.value))
    text = path.read_text('utf-8')
    requests = lengths_lib.read(text, _LENGTHS.value, _SAMPLES.value)
  peaks = chips.BY_CHIP[rules.topology_of(made).chip]
  by_rule = {
    rule.name: predict.predict(
      made, requests, rule, _SERVER.value, _buckets(), _INTERVAL.value or 1
    )
    for rule in rules.RULES
  }
  rule = _RULE.format(
    clock=peaks.clock / 1e9,
    hbm=peaks.hbm_bandwidth / 1e9,
    link=peaks.link / 1e9,
  )
  sections = [
    f'{made.title}, {made.topology}, weights {made.weights}, KV {made.kv},'
    f' {made.slots} slots of {made.beams} beams; compiled by {made.compiler}.'
    ' No TPU ran it: times are estimates.',
    f'{rule}\n{tables.terms()}',
    'Lengths\n' + tables.lengths(requests),
  ]
  if _BUCKETS.value:
    sections.append(
      f'Prompts are padded to {", ".join(_BUCKETS.value)}. Times between'
      ' compiled lengths are interpolated.'
    )
  sections += [
    'Programs\n' + tables.programs(made, requests),
    'Memory\n' + tables.memory(made),
    'Beside the roofline\n' + tables.floor(made, requests),
    'What the lengths bring in\n' + _variations(made, requests),
  ]
  if not benchmark.counts_tokens:
    published = tables.sax(_sax(requests))
    sections.append('Sax as published, by the same rules\n' + published)
  if step := predict.measured_step(made):
    sections.append('Beside a measurement\n' + tables.measured(made, step))
  if len(sets) > 1:
    sections.append('From first to last\n' + tables.path(sets, requests))
  central = by_rule[rules.CENTRAL.name]
  sections += [
    "Where Offline's time goes\n" + tables.shares(made, requests, central),
    'Prediction\n' + tables.predictions(made, requests, by_rule),
  ]
  text = '\n\n'.join(sections)
  if _PAGE.value:
    path = pathlib.Path(user_path.resolve(_PAGE.value))
    page.write(path, text, made, requests)
    text += f'\n\nThe page is at {path}.'
  return text


def _buckets() -> tuple[int, ...]:
  try:
    buckets = tuple(map(int, _BUCKETS.value))
  except ValueError as e:
    raise ValueError(
      f'--buckets is {",".join(_BUCKETS.value)}, but must be numbers such as'
      ' 512,1024,1919.'
    ) from e
  if list(buckets) != sorted({n for n in buckets if n > 0}):
    raise ValueError(
      f'--buckets is {buckets}, but must be positive and ascending.'
    )
  return buckets


def _sax(
  requests: lengths_lib.Lengths,
) -> list[tuple[predict.Published, dict[str, predict.Prediction]]]:
  """Returns the rules' predictions for the published results."""
  by_bucket = {n: costs.read(_DATA / f'sax_{n}.json') for n in _SAX}
  server = _SERVER.value
  return [
    (
      published,
      {
        rule.name: predict.predict_sax(
          by_bucket, published, requests, rule, server
        )
        for rule in rules.RULES
      },
    )
    for published in predict.PUBLISHED
  ]


def _variations(made: costs.Set, requests: lengths_lib.Lengths) -> str:
  """Returns Offline by the central rule, for other assumed lengths."""
  if _LENGTHS.value is not None:
    return '  The lengths are counted, not assumed. Only the draw is random.'
  variations = benchmarks.find(made).lengths.variations().items()
  drawn = {name: other.draw(len(requests)) for name, other in variations}
  rows = [('Offline samples/s (estimate), central rule', '')]
  for name, sample in {'as assumed': requests, **drawn}.items():
    prediction = predict.predict(made, sample, rules.CENTRAL, False, _buckets())
    rows.append((name, f'{prediction.offline:.1f}'))
  return tables.table(rows)


if __name__ == '__main__':
  program.run(main)
