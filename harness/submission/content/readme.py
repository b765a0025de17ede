"""Renders the README.md of a result and of the code, and calibration.md."""

from collections.abc import Mapping

from harness.results import entry as entry_lib
from harness.results import figures
from harness.results.cli import views
from harness.rules import rounds

_FIGURES = {
  'samples_per_second': 'samples per second',
  'queries_per_second': 'completed queries per second',
  'latency_ns': 'latency in ns, {} percentile',
}


def text(
  entry: entry_lib.Entry,
  system_name: str,
  model: str,
  measurements: Mapping[str, str | None],
) -> str:
  """Returns the README.md of a result.

  Args:
    entry: The entry of the result.
    system_name: The name of the system in the submission.
    model: The name of the model in the submission.
    measurements: The values of the measurements JSON.
  """
  parts = [
    f'# {model}, {entry.scenario}, on {system_name}',
    f'MLPerf Inference {entry.round}, measured by the harness of this'
    f' repository from {entry.began} to {entry.ended}. The kind of the system'
    f' is `{entry.system}`.',
    '## How to run it',
    'In a checkout of the repository, at the commit named below:',
    f'```\n{views.command(entry)}\n```',
    '## Figures',
    _figures(entry),
    '## Model',
    _table(('', ''), {k.replace('_', ' '): v for k, v in measurements.items()}),
    '## Parameters',
    _table(('parameter', 'value'), _flat(entry.parameters)),
  ]
  if entry.versions:
    parts += ['## Versions', _table(('package', 'version'), entry.versions)]
  if entry.hashes:
    parts += ['## SHA-256 of the input files', _table(('', ''), entry.hashes)]
  return '\n\n'.join(parts) + '\n'


def code(model: str, entries: list[entry_lib.Entry]) -> str:
  """Returns the README.md of a model's code folder.

  Args:
    model: The name of the model in the submission.
    entries: The results of the model.
  """
  commits = sorted({entry.versions.get('commit', '') for entry in entries})
  lines = [f'commit `{commit}`' for commit in commits if commit]
  commands = sorted({views.command(entry) for entry in entries})
  ran = (
    'It was run with these commands:\n\n```\n' + '\n'.join(commands) + '\n```'
  )
  return (
    '\n\n'.join(
      (
        f'# Code of {model}',
        'The program is the harness of the repository that made these results'
        + (f', at {", ".join(lines)}.' if lines else '.')
        + ' Its sources are next to this page: `harness/loadgen` connects to'
        ' LoadGen, `harness/network` is the query dispatch library of runs over'
        ' a network, `saxml_ext/engine` computes the model, and'
        ' `saxml_ext/server/scheduling` batches requests.',
        *([ran] if commands else []),
      )
    )
    + '\n'
  )


def report(
  system_name: str,
  model: str,
  scenario: str,
  measurements: Mapping[str, str | None],
) -> str:
  """Returns the README.md of a run of MLPerf Endpoints.

  Args:
    system_name: The name of the system in the submission.
    model: The name of the model in the submission.
    scenario: The name of the scenario.
    measurements: The values of the measurements JSON.
  """
  return (
    '\n\n'.join(
      (
        f'# {model}, {scenario}, on {system_name}',
        'The client of MLPerf Endpoints measured this system over HTTP.'
        ' `config.yaml` has its settings. The server is `serve`, or'
        ' `saxml_ext/http` in front of a cell; see the sources.',
        '## Model',
        _table(
          ('', ''), {k.replace('_', ' '): v for k, v in measurements.items()}
        ),
      )
    )
    + '\n'
  )


def calibration(types: Mapping[str, str | None]) -> str:
  """Returns the calibration.md for models with unquantized weights.

  Args:
    types: The type of the weights, by model.
  """
  lines = '\n'.join(f'* {model}: {kind}' for model, kind in types.items())
  return (
    '# Calibration\n\nNo model was quantized, so none was calibrated. Types of'
    f' the weights:\n\n{lines}\n'
  )


def _figures(entry: entry_lib.Entry) -> str:
  rows = {}
  if entry.performance:
    name = _FIGURES.get(entry.performance.metric, entry.performance.metric)
    rank = rounds.SCENARIOS[entry.scenario].rank
    rows[name.format(rank)] = f'{entry.performance.value:.10g}'
    rows |= _tokens(entry.performance)
    rows['samples answered'] = str(entry.performance.samples)
    rows['seconds'] = f'{entry.performance.seconds:.1f}'
  if entry.accuracy:
    rows |= {
      name: f'{value:.10g}'
      for name, value in entry.accuracy.metrics.items()
      if value is not None  # Skips figures that could not be computed.
    }
  return _table(('figure', 'value'), rows)


def _tokens(run: entry_lib.Performance) -> dict[str, str]:
  """Returns the figures of tokens if LoadGen measured them."""
  rows = {}
  if run.tokens_per_second and run.metric != figures.LATENCY_NS:
    rows['tokens per second'] = f'{run.tokens_per_second:.10g}'
  for name, latencies in (
    ('time to the first token', run.first_token_ns),
    ('time per output token', run.per_token_ns),
  ):
    if run.per_token_ns:
      rows[f'{name} in ns, 99th percentile'] = f'{latencies["99.00"]:.10g}'
  return rows


def _flat(parameters: Mapping[str, object]) -> dict[str, object]:
  """Returns the parameters by name. Names in groups start with the group."""
  rows: dict[str, object] = {}
  for key, value in parameters.items():
    if isinstance(value, Mapping):
      rows |= {f'{key}: {name}': value[name] for name in value}
    else:
      rows[key] = value
  return rows


def _table(head: tuple[str, str], rows: Mapping[str, object]) -> str:
  lines = [f'| {head[0]} | {head[1]} |', '|---|---|']
  lines += [f'| {_cell(key)} | {_cell(rows[key])} |' for key in rows]
  return '\n'.join(lines)


def _cell(value: object) -> str:
  return str(value).replace('|', '\\|').replace('\n', ' ')
