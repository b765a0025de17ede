"""Comparison of logits on sample texts: reference, float and INT8 model."""

from collections.abc import Iterator
import importlib

from converters.quantize import layers
from converters.quantize import model_files
from converters.quantize import sample_texts
from converters.quantize.report import logit_errors
from converters.verify import comparison
from converters.verify import pax_comparison


def compare_with_hf(
  base: str,
  pax: str,
  texts: sample_texts.Texts,
  tolerance: float,
) -> Iterator[comparison.Comparison]:
  """Compares the engine's logits with those of transformers on PyTorch.

  Args:
    base: Hugging Face directory.
    pax: float checkpoint made of it.
    texts: to run.
    tolerance: largest difference that is none.

  Raises:
    errors.CheckpointError: the checkpoint cannot be run.
    ModuleNotFoundError: there is no PyTorch.
  """
  # PyTorch is large, and only this asks for it.
  reference = importlib.import_module('converters.verify.torch_logits')
  model = model_files.open_model(pax)
  dtype = next(
    spec.dtype
    for name, spec in model.reader.specs.items()
    if name.endswith('combined_qkv.w')
  )
  expected = reference.answer_logits(
    base, dtype, texts, model.config.vocab_size
  )
  error = logit_errors.error(
    'float32', expected, logit_errors.answer_logits(_run(model), texts)
  )
  yield _line('transformers, engine', error, tolerance, 'tolerance')


def compare_with_pax(
  source: str,
  pax: str,
  texts: sample_texts.Texts,
  tolerance: float,
) -> Iterator[comparison.Comparison]:
  """Compares the engine's logits of two PAX checkpoints.

  Those of an INT8 checkpoint may differ by what its report states.

  Raises:
    errors.CheckpointError: a checkpoint cannot be run.
  """
  exact, model = map(model_files.open_model, (source, pax))
  expected = logit_errors.answer_logits(_run(exact), texts)
  int8 = any(s.dtype == 'int8' for s in model.reader.specs.values())
  stated = pax_comparison.stated_logit_errors(pax)
  for quantization in ('int8_weights', 'int8') if int8 else (None,):
    found = logit_errors.answer_logits(_run(model, quantization), texts)
    error = logit_errors.error(quantization or 'float32', expected, found)
    label = f'float32, {error.quantization}'
    if int8:
      yield _line(label, error, stated.get(error.quantization), 'stated')
    else:
      yield _line(label, error, tolerance, 'tolerance')


def _run(
  model: model_files.Model, quantization: str | None = None
) -> layers.LayeredModel:
  return layers.LayeredModel(model.reader, model.config, quantization)


def _line(
  label: str,
  error: logit_errors.LogitError,
  limit: float | None,
  whose: str,
) -> comparison.Comparison:
  problem = ''
  # Not "greater": a NaN is a problem too.
  if limit is not None and not error.max_error <= limit:
    problem = f'beyond the {whose} {limit:g}'
  return comparison.Comparison(
    f'{comparison.LOGITS} {label}',
    f'{error.positions} places',
    error.max_error,
    f'mean {error.mean_error:.2g}, same top-1 {error.agreement:.2%}',
    problem,
  )
