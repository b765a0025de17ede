"""Measures an INT8 checkpoint against its source and writes the report."""

from collections.abc import Sequence
import os

import tokenizers

from converters import quantization_errors
from converters import quantization_html
from converters import quantization_layers
from converters import quantization_logits
from converters import quantization_model
from converters import quantization_record
from converters import quantization_report
from converters import quantization_rouge
from converters import quantization_texts
from saxml_ext.common import dataset
from saxml_ext.common import storage
from saxml_ext.pax import checkpoint
from saxml_ext.pax import chunks

_QUANTIZATIONS = ('int8_weights', 'int8')


def report(source: str, pax: str, articles: Sequence[dataset.Article]) -> str:
  """Writes the report beside the checkpoint and returns its text.

  Args:
    source: the float checkpoint.
    pax: the INT8 checkpoint, as `quantization.quantize` wrote it.
    articles: to measure logits and ROUGE on; none: they are not measured.

  Raises:
    errors.CheckpointError: a checkpoint cannot be read, or the report not be
      written.
  """
  exact, quantized = checkpoint.Reader(source), checkpoint.Reader(pax)
  record = quantization_record.read(pax)
  logits = scores = None
  matrices = tuple(quantization_errors.matrix_errors(exact, quantized, record))
  if articles:
    models = [quantization_model.open_model(path) for path in (source, pax)]
    tokenizer = quantization_texts.load_tokenizer(models[1].directory)
    texts = quantization_texts.from_articles(
        articles[: quantization_texts.LOGIT_ARTICLES],
        tokenizer,
        models[0].description['max_positions'],
    )
    logits = tuple(_logits(models, texts))
    scores = _rouge(models, articles, tokenizer)
  result = quantization_report.Report(
      record, _sizes(exact), _sizes(quantized), matrices, logits, scores
  )
  quantization_report.write(pax, result, quantization_html.page(result))
  return quantization_report.text(result)


def _rouge(
    models: Sequence[quantization_model.Model],
    articles: Sequence[dataset.Article],
    tokenizer: tokenizers.Tokenizer,
) -> tuple[quantization_report.Rouge, ...]:
  """Of the float model, and of each way to run the INT8 model."""
  exact, quantized = models
  expected = quantization_rouge.summarize(exact, None, articles, tokenizer)
  result = [quantization_report.Rouge.of('float32', expected, expected)]
  for quantization in _QUANTIZATIONS:
    found = quantization_rouge.summarize(
        quantized, quantization, articles, tokenizer
    )
    result.append(quantization_report.Rouge.of(quantization, found, expected))
  return tuple(result)


def _logits(
    models: Sequence[quantization_model.Model], texts: quantization_texts.Texts
) -> list[quantization_logits.LogitError]:
  exact, quantized = models
  return quantization_logits.measure(
      quantization_layers.LayeredModel(exact.reader, exact.config),
      [
          quantization_layers.LayeredModel(
              quantized.reader, quantized.config, quantization
          )
          for quantization in _QUANTIZATIONS
      ],
      texts,
  )


def _sizes(reader: checkpoint.Reader) -> quantization_report.Sizes:
  variables = sum(map(chunks.num_bytes, reader.specs.values()))
  if storage.is_url(reader.step_dir):
    return quantization_report.Sizes(variables, None)
  files = sum(
      os.path.getsize(os.path.join(parent, name))
      for parent, _, names in os.walk(os.path.join(reader.step_dir, 'state'))
      for name in names
  )
  return quantization_report.Sizes(variables, files)
