"""Compares logits on sample texts between reference, float and INT8 models."""

from collections.abc import Iterator
import importlib

import numpy as np

from converters.quantize import models
from converters.quantize import sample_texts
from converters.quantize.report import logit_errors
from converters.verify import comparison


def compare_with_hf(
  base: str, pax: str, texts: sample_texts.Texts, tolerance: float
) -> Iterator[comparison.Comparison]:
  """Compares the engine's logits with those of transformers on PyTorch.

  Args:
    base: The Hugging Face directory.
    pax: The float checkpoint that was converted from it.
    texts: The texts to run.
    tolerance: The largest difference that is accepted.

  Yields:
    The result of the comparison.

  Raises:
    errors.CheckpointError: A checkpoint cannot be run.
    ModuleNotFoundError: PyTorch is not installed.
  """
  model = models.open_model(pax)
  dtype = next(
    spec.dtype
    for name, spec in model.reader.specs.items()
    if name.endswith('combined_qkv.w')
  )
  expected = _torch_logits(base, dtype, texts, model.config.vocab_size)
  logits = logit_errors.answer_logits(model, texts)
  error = logit_errors.error('float32', expected, logits)
  yield _line('transformers, engine', error, tolerance, 'tolerance')


def compare_with_pax(
  source: str, pax: str, texts: sample_texts.Texts, tolerance: float
) -> Iterator[comparison.Comparison]:
  """Compares the engine's logits of two PAX checkpoints.

  Logits of an INT8 checkpoint may differ by the errors in its report.

  Args:
    source: The float checkpoint.
    pax: The checkpoint to verify.
    texts: The texts to run.
    tolerance: The largest difference that is accepted for a float checkpoint.

  Yields:
    The result for each way to run the checkpoint.

  Raises:
    errors.CheckpointError: A checkpoint cannot be run.
  """
  exact, model = map(models.open_model, (source, pax))
  expected = logit_errors.answer_logits(exact, texts)
  int8 = any(s.dtype == 'int8' for s in model.reader.specs.values())
  stated = comparison.stated_logit_errors(model.reader)
  for quantization in ('int8_weights', 'int8') if int8 else (None,):
    logits = logit_errors.answer_logits(model.run_as(quantization), texts)
    error = logit_errors.error(quantization or 'float32', expected, logits)
    label = f'float32, {error.quantization}'
    if int8:
      yield _line(label, error, stated.get(error.quantization), 'stated error')
    else:
      yield _line(label, error, tolerance, 'tolerance')


def _torch_logits(
  base: str, dtype: str, texts: sample_texts.Texts, vocab_size: int
) -> np.ndarray:
  """Returns transformers' logits in the format of `logit_errors.answer_logits`.

  They are computed in float32 with the whole model in memory.

  Args:
    base: The Hugging Face directory. No code in it is executed.
    dtype: The type that the weights are first rounded to, as in a conversion.
    texts: The texts to run.
    vocab_size: The size of the vocabulary. Further logits are cut, because a
      conversion cuts padding.

  Returns:
    Logits [positions, vocab_size].
  """
  # PyTorch is large, and only this function needs it.
  torch, transformers = map(importlib.import_module, ('torch', 'transformers'))
  logits = []
  with torch.inference_mode():
    model = transformers.AutoModelForCausalLM.from_pretrained(
      base, dtype=torch.float32, local_files_only=True
    ).eval()
    if dtype != 'float32':
      for parameter in model.parameters():
        parameter.copy_(parameter.to(getattr(torch, dtype)).float())
    for batch in texts.batches:
      # Padding is on the right, so it does not affect real tokens.
      output = model(torch.from_numpy(batch.tokens).long()).logits.numpy()
      logits.append(output[batch.answers][:, :vocab_size])
  return np.concatenate(logits)


def _line(
  label: str,
  error: logit_errors.LogitError,
  limit: float | None,
  limit_name: str,
) -> comparison.Comparison:
  problem = ''
  # The condition is not `>`, because a NaN is a problem too.
  if limit is not None and not error.max_error <= limit:
    problem = f'exceeds the {limit_name} {limit:g}'
  return comparison.Comparison(
    f'{comparison.LOGITS} {label}',
    f'{error.positions} positions',
    error.max_error,
    f'mean {error.mean_error:.2g}, same top-1 {error.agreement:.2%}',
    problem,
  )
