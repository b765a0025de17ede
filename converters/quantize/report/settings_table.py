"""What each way to quantize keeps of a model, as the rows of one table."""

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


# Name in the table -> how it is done; any use of the inputs needs calibration.
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
  """Quantizes and scores a model in every way; yields a table in Markdown.

  The models run as QUANTIZATION=int8 has it. "same" are the answers that are
  those of float32, token for token; KL is the mean divergence of the next
  token's distribution from float32's, at the places of the first articles'
  answers.

  Args:
    source: The float PAX checkpoint, with its tokenizer.
    calibration: Articles to calibrate on.
    articles: Articles to score on.
    directory: Where one INT8 checkpoint after the other is written.
    settings: The rows.
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
  yield _row('float32', figures.Rouge.of('float32', expected, expected))
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
    record = provenance.Record(options)
    quantization.quantize(source, pax, record, next_layer)
    model = models.open_model(pax)
    found = rouge_scores.summarize(model, 'int8', articles, tokenizer)
    error = logit_errors.error(
      'int8',
      logits,
      logit_errors.answer_logits(model.run_as('int8'), texts),
    )
    shutil.rmtree(pax)
    rouge = figures.Rouge.of('int8', found, expected)
    yield _row(label, rouge, f'{error.divergence:.3g}')


def _row(label: str, rouge: figures.Rouge, divergence: str = '') -> str:
  scores = [
    f'{getattr(rouge.scores, metric):.4f}' for metric in figures.METRICS
  ]
  kept = f'{rouge.kept:.3%}'.replace('%', ' %') if divergence else ''
  return _line([label, *scores, kept, str(rouge.same), divergence])


def _line(cells: Sequence[str]) -> str:
  return f'| {" | ".join(cells)} |'
