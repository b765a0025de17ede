"""The figures of a quantization report, saved as JSON, text and HTML."""

from collections.abc import Callable, Sequence
import dataclasses
import json
import os
import pathlib
from typing import Any

from converters.quantize import int8_matrix
from converters.quantize import provenance
from converters.quantize.report import logit_errors
from converters.quantize.report import rouge_scores
from saxml_ext.common.pages import page_kit
from saxml_ext.common.pages import svg_lines
from saxml_ext.common.pages import text_columns
from saxml_ext.engine import variables
from saxml_ext.evaluation import rouge

_TEMPLATE = pathlib.Path(__file__).parent / 'templates' / 'report.html'
METRICS = {'rouge1': 'ROUGE-1', 'rouge2': 'ROUGE-2', 'rougeL': 'ROUGE-L'}
_NOT_MEASURED = 'not measured, because --articles is not set'


@dataclasses.dataclass(frozen=True)
class Sizes:
  """The bytes of all variables, and of their files (None in a bucket)."""

  variables: int
  files: int | None


@dataclasses.dataclass(frozen=True)
class Rouge:
  """The scores of the summaries of one way to run a model.

  Attributes:
    quantization: The way to run the model; "float32" for the float model.
    scores: The ROUGE of the summaries.
    kept: The smallest ratio of ROUGE-1, -2 or -L to that of the float model.
    same: The number of answers that equal the float model's, token for token.
  """

  quantization: str
  scores: rouge.Scores
  kept: float
  same: int

  @classmethod
  def compare(
    cls,
    quantization: str,
    summaries: rouge_scores.Summaries,
    expected: rouge_scores.Summaries,
  ) -> 'Rouge':
    """Compares summaries with those of the float model.

    Args:
      quantization: The way to run the model.
      summaries: The summaries of the model.
      expected: The summaries of the float model.
    """
    kept = min(
      getattr(summaries.scores, metric)
      / (getattr(expected.scores, metric) or 1)
      for metric in METRICS
    )
    return cls(
      quantization, summaries.scores, kept, summaries.num_same(expected)
    )


@dataclasses.dataclass(frozen=True)
class Report:
  """The figures of one quantization.

  Attributes:
    record: The record of the quantization.
    before, after: The sizes of the float and of the INT8 checkpoint.
    matrices: The errors of all matrices, in layer order.
    logits: The errors of each way to run the model; None if not measured.
    scores: The scores of each way to run the model, with the float model first;
      None if not measured.
  """

  record: provenance.Record
  before: Sizes
  after: Sizes
  matrices: tuple[int8_matrix.MatrixError, ...]
  logits: tuple[logit_errors.LogitError, ...] | None = None
  scores: tuple[Rouge, ...] | None = None


def options_text(record: provenance.Record) -> str:
  """Returns the options as text."""
  options = record.options
  parts = [f'{options.bits} bits', 'one scale per output channel, symmetric']
  if options.softmax:
    parts.append('including the head')
  if options.smoothing is not None:
    parts.append(f'smoothing {options.smoothing:g}')
  if options.clipping:
    parts.append('clipping search')
  if options.gptq_inputs:
    parts.append(f'GPTQ up to {options.gptq_inputs} inputs')
  if record.calibration_articles:
    parts.append(
      f'calibrated on {record.calibration_articles} articles '
      f'({record.calibration_tokens} tokens)'
    )
  return ', '.join(parts)


def short_name(name: str) -> str:
  """Returns a short matrix name, for example `0 self_attention.post`."""
  layer = variables.layer_of(name)
  if layer is None:
    return name.removeprefix('params.lm.').removesuffix('.w')
  _, _, rest = name.partition(f'x_layers_{layer}.')
  return f'{layer} {rest.removesuffix(".w")}'


def text(report: Report) -> str:
  """Returns the report as plain text."""
  logits, scores = f'Logits: {_NOT_MEASURED}', f'ROUGE: {_NOT_MEASURED}'
  if report.logits is not None:
    logits = text_columns.render(_rows(_LOGITS, report.logits)) + (
      '\ncompared with float32 at'
      f' {report.logits[0].positions} positions of the answers'
    )
  if report.scores is not None:
    scores = text_columns.render(_rows(_ROUGE, report.scores)) + (
      '\n"kept" is the smallest of the three ratios to float32'
    )
  sections = [
    f'Quantization: {options_text(report.record)}',
    text_columns.render(_size_rows(report)),
    text_columns.render(_rows(_MATRIX, report.matrices)),
    logits,
    scores,
  ]
  return '\n\n'.join(sections) + '\n'


def page(report: Report) -> str:
  """Returns the report as a self-contained HTML page."""
  return page_kit.render(
    _TEMPLATE,
    options=options_text(report.record),
    sizes=_size_rows(report),
    rouge=_rows(_ROUGE, report.scores) if report.scores else None,
    logits=_rows(_LOGITS, report.logits) if report.logits else None,
    chart=_chart(report.matrices),
    matrices=_rows(_MATRIX, report.matrices),
  )


def write(directory: str, report: Report) -> None:
  """Writes the three files of the report.

  Args:
    directory: The directory of the checkpoint.
    report: The figures.

  Raises:
    errors.UnwritableError: The file system reports an error.
  """
  figures = dataclasses.asdict(report)
  del figures['record']  # It has its own file.
  for name, content in {
    provenance.REPORT_TEXT: text(report),
    provenance.REPORT_HTML: page(report),
    provenance.REPORT_JSON: json.dumps(figures, indent=1) + '\n',
  }.items():
    provenance.write_file(
      os.path.join(directory, name), content.encode('utf-8')
    )


def _size_rows(report: Report) -> list[list[str]]:
  rows = [['size', 'before', 'after', 'ratio']]
  for label, before, after in (
    ('in memory', report.before.variables, report.after.variables),
    ('on disk', report.before.files, report.after.files),
  ):
    if before is not None and after is not None:
      sizes = [f'{size / 1e6:.1f} MB' for size in (before, after)]
      rows.append([label, *sizes, f'{after / before:.3f}'])
  return rows


_Columns = tuple[tuple[str, Callable[[Any], str]], ...]

_MATRIX: _Columns = (
  ('matrix', lambda m: short_name(m.name)),
  ('rel. RMS', lambda m: f'{m.relative_rms:.5f}'),
  ('SNR dB', lambda m: f'{m.snr_db:.2f}'),
  ('max error', lambda m: f'{m.max_error:.3g}'),
  ('in steps', lambda m: f'{m.max_steps:.2f}'),
  ('clipped', lambda m: f'{m.clipped:.5%}'),
)
_LOGITS: _Columns = (
  ('logits of', lambda e: e.quantization),
  ('max error', lambda e: f'{e.max_error:.4f}'),
  ('mean error', lambda e: f'{e.mean_error:.5f}'),
  ('KL, nats', lambda e: f'{e.divergence:.3g}'),
  ('same top-1', lambda e: f'{e.agreement:.4%}'),
)
_ROUGE: _Columns = (
  ('ROUGE', lambda r: r.quantization),
  ('ROUGE-1', lambda r: f'{r.scores.rouge1:.4f}'),
  ('ROUGE-2', lambda r: f'{r.scores.rouge2:.4f}'),
  ('ROUGE-L', lambda r: f'{r.scores.rougeL:.4f}'),
  ('gen_len', lambda r: str(r.scores.gen_len)),
  ('same answers', lambda r: f'{r.same} of {r.scores.gen_num}'),
  ('kept', lambda r: f'{r.kept:.3%}'),
)


def _rows(columns: _Columns, items: Sequence[Any]) -> list[list[str]]:
  """Returns the rows of a table; the first row has the headings."""
  return [
    [title for title, _ in columns],
    *([show(item) for _, show in columns] for item in items),
  ]


def _chart(
  matrices: Sequence[int8_matrix.MatrixError],
) -> svg_lines.Figure | None:
  """Returns the signal-to-noise ratio by layer, with a line for each kind."""
  by_kind: dict[str, dict[int, float]] = {}
  for m in matrices:
    layer = variables.layer_of(m.name)
    if layer is not None and m.relative_rms > 0:
      kind = short_name(m.name).partition(' ')[2]
      by_kind.setdefault(kind, {})[layer] = m.snr_db
  if not by_kind:
    return None
  values = [db for line in by_kind.values() for db in line.values()]
  last = max(layer for line in by_kind.values() for layer in line)
  low, high = int(min(values) // 5) * 5, int(max(values) // 5) * 5 + 5
  step = 5 if high - low <= 40 else 10
  lines = [
    (kind, [line.get(layer) for layer in range(last + 1)])
    for kind, line in sorted(by_kind.items())
  ]
  labels = {i: str(i) for i in range(0, last + 1, max(1, -(-last // 14)))}
  return svg_lines.figure(
    'Signal to noise ratio by layer',
    'dB',
    lines,
    range(low, high + step, step),
    labels,
  )
