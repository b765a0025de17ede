"""What a quantization cost: figures, kept as JSON and shown as text."""

from collections.abc import Sequence
import dataclasses
import json
import os

from converters.quantize import matrix_error
from converters.quantize import provenance
from converters.quantize import side_files
from converters.quantize.report import logit_errors
from converters.quantize.report import rouge_scores
from saxml_ext.engine import variables
from saxml_ext.evaluation import rouge

METRICS = {'rouge1': 'ROUGE-1', 'rouge2': 'ROUGE-2', 'rougeL': 'ROUGE-L'}
_NOT_ASKED = 'not measured: --articles was not given'


@dataclasses.dataclass(frozen=True)
class Sizes:
  """Bytes of all variables, and of their files; None of those in a bucket."""

  variables: int
  files: int | None


@dataclasses.dataclass(frozen=True)
class Rouge:
  """Summaries of one way to run a model.

  Attributes:
    quantization: the way, "float32" for the float model.
    scores: their ROUGE.
    kept: the least of ROUGE-1, -2 and -L over that of the float model.
    same: how many answers are the float model's, token for token.
  """

  quantization: str
  scores: rouge.Scores
  kept: float
  same: int

  @classmethod
  def of(
    cls,
    quantization: str,
    found: rouge_scores.Summaries,
    expected: rouge_scores.Summaries,
  ) -> 'Rouge':
    """Compares with the float model's summaries."""
    kept = min(
      getattr(found.scores, metric) / (getattr(expected.scores, metric) or 1)
      for metric in METRICS
    )
    return cls(quantization, found.scores, kept, found.num_same(expected))


@dataclasses.dataclass(frozen=True)
class Report:
  """Figures of one quantization.

  Attributes:
    record: how it was done.
    before, after: sizes of the float and the INT8 checkpoint.
    matrices: errors of each, layer by layer.
    logits: errors of each way to run the model; None if not measured.
    scores: of each way, the float model's first; None likewise.
  """

  record: provenance.Record
  before: Sizes
  after: Sizes
  matrices: tuple[matrix_error.MatrixError, ...]
  logits: tuple[logit_errors.LogitError, ...] | None = None
  scores: tuple[Rouge, ...] | None = None


def options_text(record: provenance.Record) -> str:
  """The options in words."""
  options = record.options
  parts = [f'{options.bits} bits', 'one scale per output channel, symmetric']
  if options.softmax:
    parts.append('the head too')
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
  """A matrix' name without what all share, e.g. `0 self_attention.post`."""
  layer = variables.layer_of(name)
  if layer is None:
    return name.removeprefix('params.lm.').removesuffix('.w')
  _, _, rest = name.partition(f'x_layers_{layer}.')
  return f'{layer} {rest.removesuffix(".w")}'


def text(report: Report) -> str:
  """The report as plain text."""
  sections = [
    f'Quantization: {options_text(report.record)}',
    _sizes(report),
    _matrices(report.matrices),
    _logits(report.logits),
    _rouge(report.scores),
  ]
  return '\n\n'.join(sections) + '\n'


def table(rows: Sequence[Sequence[str]]) -> str:
  """Rows of equal length as columns, the first to the left."""
  widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
  return '\n'.join(
    '  '.join(
      cell.rjust(width) if i else cell.ljust(width)
      for i, (cell, width) in enumerate(zip(row, widths))
    ).rstrip()
    for row in rows
  )


def size_rows(report: Report) -> list[list[str]]:
  rows = [['size', 'before', 'after', 'ratio']]
  for field, label in (('variables', 'in memory'), ('files', 'on disk')):
    before, after = (
      getattr(sizes, field) for sizes in (report.before, report.after)
    )
    if before is None or after is None:
      continue
    rows.append(
      [
        label,
        f'{before / 1e6:.1f} MB',
        f'{after / 1e6:.1f} MB',
        f'{after / before:.3f}',
      ]
    )
  return rows


def matrix_rows(
  matrices: Sequence[matrix_error.MatrixError],
) -> list[list[str]]:
  rows = [['matrix', 'rel. RMS', 'SNR dB', 'max error', 'in steps', 'clipped']]
  for m in matrices:
    rows.append(
      [
        short_name(m.name),
        f'{m.relative_rms:.5f}',
        f'{m.snr_db:.2f}',
        f'{m.max_error:.3g}',
        f'{m.max_steps:.2f}',
        f'{m.clipped:.5%}',
      ]
    )
  return rows


def logit_rows(
  logits: Sequence[logit_errors.LogitError],
) -> list[list[str]]:
  rows = [['logits of', 'max error', 'mean error', 'KL, nats', 'same top-1']]
  for e in logits:
    rows.append(
      [
        e.quantization,
        f'{e.max_error:.4f}',
        f'{e.mean_error:.5f}',
        f'{e.divergence:.3g}',
        f'{e.agreement:.4%}',
      ]
    )
  return rows


def rouge_rows(scores: Sequence[Rouge]) -> list[list[str]]:
  rows = [['ROUGE', *METRICS.values(), 'gen_len', 'same answers', 'kept']]
  for found in scores:
    values = [getattr(found.scores, metric) for metric in METRICS]
    rows.append(
      [
        found.quantization,
        *(f'{value:.4f}' for value in values),
        str(found.scores.gen_len),
        f'{found.same} of {found.scores.gen_num}',
        f'{found.kept:.3%}',
      ]
    )
  return rows


def write(directory: str, report: Report, html: str) -> None:
  """Writes the report's three files.

  Raises:
    errors.UnwritableError: the file system refuses.
  """
  figures = dataclasses.asdict(report)
  del figures['record']  # In a file of its own.
  files = {
    side_files.REPORT_TEXT: text(report),
    side_files.REPORT_HTML: html,
    side_files.REPORT_JSON: json.dumps(figures, indent=1) + '\n',
  }
  for name, content in files.items():
    path = os.path.join(directory, name)
    side_files.write(path, content.encode('utf-8'))


def _sizes(report: Report) -> str:
  return table(size_rows(report))


def _matrices(
  matrices: Sequence[matrix_error.MatrixError],
) -> str:
  return table(matrix_rows(matrices))


def _logits(logits: Sequence[logit_errors.LogitError] | None) -> str:
  if logits is None:
    return f'Logits: {_NOT_ASKED}'
  return table(logit_rows(logits)) + (
    f'\nagainst float32, at {logits[0].positions} places of the answers'
  )


def _rouge(scores: Sequence[Rouge] | None) -> str:
  if scores is None:
    return f'ROUGE: {_NOT_ASKED}'
  return table(rouge_rows(scores)) + (
    '\n"kept" is the least of the three ratios to float32'
  )
