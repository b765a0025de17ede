"""Compares the accuracy of all ways to quantize a model, in one table."""

from collections.abc import Iterator, Mapping, Sequence
import os
import shutil

from converters.quantize import calibration_run
from converters.quantize import models
from converters.quantize import provenance
from converters.quantize import quantization
from converters.quantize import sample_texts
from converters.quantize.report import figures
from converters.quantize.report import logit_errors
from converters.quantize.report import rouge_scores
from saxml_ext.evaluation import dataset

_GPTQ_INPUTS = 4096


# The settings by name in the table. All settings that use input statistics need
# calibration.
SETTINGS = {
  'plain rounding': provenance.Options(),
  '`--clipping`': provenance.Options(clipping=True),
  '`--smoothing=0`': provenance.Options(smoothing=0.0),
  'calibrated, `--smoothing=0.5 --gptq_max_inputs=0`': provenance.Options(
    smoothing=0.5
  ),
  'calibrated, `--smoothing=-1` (GPTQ alone)': provenance.Options(
    gptq_inputs=_GPTQ_INPUTS
  ),
  'calibrated': provenance.Options(smoothing=0.0, gptq_inputs=_GPTQ_INPUTS),
  'calibrated, `--smoothing=0.5`': provenance.Options(
    smoothing=0.5, gptq_inputs=_GPTQ_INPUTS
  ),
}

_HEADER = (
  '`int8`',
  *figures.METRICS.values(),
  'least kept',
  'same',
  'KL, nats',
)


def lines(
  source: str,
  calibration: Sequence[dataset.Article],
  articles: Sequence[dataset.Article],
  directory: str,
  settings: Mapping[str, provenance.Options] = SETTINGS,
) -> Iterator[str]:
  """Quantizes and scores a model in every way; yields a Markdown table.

  The models run with QUANTIZATION=int8. The column "same" counts the answers
  that equal those of float32, token for token. The column "KL" is the mean
  divergence of the next token's distribution from that of float32. It is
  measured at the answers of the first articles.

  Args:
    source: The float PAX checkpoint, with its tokenizer.
    calibration: The articles to calibrate on.
    articles: The articles to score on.
    directory: The directory for the INT8 checkpoints, which are written one
      after the other.
    settings: The rows of the table.

  Yields:
    The lines of the table.
  """
  exact = models.open_model(source)
  longest = exact.max_positions
  tokenizer = sample_texts.load_tokenizer(exact.reader.directory)
  texts = sample_texts.from_articles(
    articles[: sample_texts.LOGIT_ARTICLES], tokenizer, longest
  )
  logits = logit_errors.answer_logits(exact, texts)
  expected = rouge_scores.summarize(exact, None, articles, tokenizer)
  yield _line(_HEADER)
  yield _line(['---'] * len(_HEADER))
  yield _row('float32', figures.Rouge.compare('float32', expected, expected))
  calibration_texts = sample_texts.from_articles(
    calibration, tokenizer, longest
  )
  for label, options in settings.items():
    pax = os.path.join(directory, 'int8')
    next_layer = None
    if options.smoothing or options.gptq_inputs:
      next_layer = calibration_run.Calibration(
        exact, calibration_texts, options.gptq_inputs
      ).next_layer
    quantization.quantize(source, pax, provenance.Record(options), next_layer)
    model = models.open_model(pax)
    summaries = rouge_scores.summarize(model, 'int8', articles, tokenizer)
    error = logit_errors.error(
      'int8', logits, logit_errors.answer_logits(model.run_as('int8'), texts)
    )
    shutil.rmtree(pax)
    rouge = figures.Rouge.compare('int8', summaries, expected)
    yield _row(label, rouge, f'{error.divergence:.3g}')


def _row(label: str, rouge: figures.Rouge, divergence: str = '') -> str:
  scores = [
    f'{getattr(rouge.scores, metric):.4f}' for metric in figures.METRICS
  ]
  kept = f'{rouge.kept:.3%}'.replace('%', ' %') if divergence else ''
  return _line([label, *scores, kept, str(rouge.same), divergence])


def _line(cells: Sequence[str]) -> str:
  return f'| {" | ".join(cells)} |'
