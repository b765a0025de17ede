"""Compares an INT8 checkpoint with its source and writes the report."""

from collections.abc import Sequence
import os

import tokenizers

from converters.quantize import models
from converters.quantize import provenance
from converters.quantize import sample_texts
from converters.quantize.report import figures
from converters.quantize.report import logit_errors
from converters.quantize.report import matrix_errors
from converters.quantize.report import rouge_scores
from saxml_ext.common import storage
from saxml_ext.evaluation import dataset
from saxml_ext.pax import checkpoint
from saxml_ext.pax import errors

_QUANTIZATIONS = ('int8_weights', 'int8')


def report(source: str, pax: str, articles: Sequence[dataset.Article]) -> str:
  """Writes the report next to the checkpoint and returns its text.

  Args:
    source: The float checkpoint.
    pax: The INT8 checkpoint that `quantization.quantize` wrote.
    articles: The articles for logits and ROUGE. If there are none, logits and
      ROUGE are not measured.

  Raises:
    errors.CheckpointError: A checkpoint cannot be read, there is no record of
      the quantization, or the report cannot be written.
  """
  exact, quantized = checkpoint.Reader(source), checkpoint.Reader(pax)
  record = provenance.read(pax)
  if record is None:
    raise errors.CheckpointError(
      f'{pax} has no {provenance.FILE_NAME}, the record of its quantization.'
      ' Quantize the checkpoint with offline_quantize.'
    )
  logits = scores = None
  # Errors are usually measured during quantization. For checkpoints of other
  # tools they are measured here.
  matrices = record.errors or tuple(
    matrix_errors.matrix_errors(exact, quantized, record)
  )
  if articles:
    pair = [models.open_model(path) for path in (source, pax)]
    tokenizer = sample_texts.load_tokenizer(pair[1].reader.directory)
    texts = sample_texts.from_articles(
      articles[: sample_texts.LOGIT_ARTICLES], tokenizer, pair[0].max_positions
    )
    logits = tuple(_logits(pair, texts))
    scores = _rouge(pair, articles, tokenizer)
  result = figures.Report(
    record, _sizes(exact), _sizes(quantized), matrices, logits, scores
  )
  figures.write(pax, result)
  return figures.text(result)


def _rouge(
  pair: Sequence[models.Model],
  articles: Sequence[dataset.Article],
  tokenizer: tokenizers.Tokenizer,
) -> tuple[figures.Rouge, ...]:
  """Returns the ROUGE of a pair of models.

  Args:
    pair: The float model and the INT8 model.
    articles: The articles to summarize.
    tokenizer: The tokenizer of both models.

  Returns:
    The scores of the float model, and of each way to run the INT8 model.
  """
  exact, quantized = pair
  expected = rouge_scores.summarize(exact, None, articles, tokenizer)
  result = [figures.Rouge.compare('float32', expected, expected)]
  for quantization in _QUANTIZATIONS:
    summaries = rouge_scores.summarize(
      quantized, quantization, articles, tokenizer
    )
    result.append(figures.Rouge.compare(quantization, summaries, expected))
  return tuple(result)


def _logits(
  pair: Sequence[models.Model], texts: sample_texts.Texts
) -> list[logit_errors.LogitError]:
  exact, quantized = pair
  return logit_errors.measure(
    exact,
    [quantized.run_as(quantization) for quantization in _QUANTIZATIONS],
    texts,
  )


def _sizes(reader: checkpoint.Reader) -> figures.Sizes:
  variables = sum(spec.num_bytes for spec in reader.specs.values())
  if storage.is_url(reader.step_dir):
    return figures.Sizes(variables, None)
  files = sum(
    os.path.getsize(os.path.join(parent, name))
    for parent, _, names in os.walk(os.path.join(reader.step_dir, 'state'))
    for name in names
  )
  return figures.Sizes(variables, files)
