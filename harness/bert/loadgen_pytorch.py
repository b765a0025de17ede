"""Runs LoadGen once with BERT in PyTorch, on a CPU or a CUDA device.

The model runs as in the reference.
"""

from collections.abc import Sequence
import os
import pickle

import numpy as np
import torch
import transformers

from harness.bert import answering
from harness.loadgen import run as run_lib
from harness.systems import bert_systems
from saxml_ext.common import program

FLOAT32 = 'float32'
PRECISIONS = (FLOAT32, 'bfloat16', 'float16')
DEVICES = ('cpu', 'cuda')


class TorchModel:
  """A BertForQuestionAnswering; see `answering.Model`."""

  fixed_length = None
  fixed_batch = None

  def __init__(self, model: transformers.BertForQuestionAnswering, device: str):
    self._model = model
    self._device = device

  @torch.inference_mode()
  def logits(
    self, input_ids: np.ndarray, mask: np.ndarray, segment_ids: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray]:
    ids, attention, segments = (
      torch.from_numpy(part).to(self._device)
      for part in (input_ids, mask, segment_ids)
    )
    made = self._model(
      input_ids=ids, attention_mask=attention, token_type_ids=segments
    )
    return (
      made.start_logits.float().cpu().numpy(),
      made.end_logits.float().cpu().numpy(),
    )


def load(
  path: str, precision: str | None, device: str, threads: int
) -> TorchModel:
  """Loads a model.

  Args:
    path: A Hugging Face directory, or a file with the state_dict of BERT-large,
      such as the reference's model.pytorch.
    precision: The precision, one of PRECISIONS; None: float32.
    device: The device, one of DEVICES.
    threads: The number of CPU threads for one batch; 0: one for each core.

  Raises:
    OSError: The file does not exist.
    ValueError: The file is not such a model, or the device does not exist.
  """
  precision = precision or FLOAT32
  answering.check_choice('precision', precision, PRECISIONS)
  answering.check_choice('device', device, DEVICES)
  if device == 'cuda' and not torch.cuda.is_available():
    raise ValueError(
      f'--device=cuda: PyTorch {torch.__version__} finds no CUDA device. Check'
      ' nvidia-smi, install a PyTorch with CUDA (see docs/bert.md), or use'
      ' --device=cpu.'
    )
  if threads:
    torch.set_num_threads(threads)
  transformers.logging.disable_progress_bar()
  dtype = getattr(torch, precision)
  if os.path.isfile(path):
    model = _from_state_dict(path)
  else:
    if not os.path.isfile(os.path.join(path, 'config.json')):
      raise FileNotFoundError(
        f'{path} has no config.json. Pass a Hugging Face directory of a'
        ' BertForQuestionAnswering.'
      )
    model = transformers.BertForQuestionAnswering.from_pretrained(
      path, local_files_only=True
    )
  return TorchModel(model.to(dtype).to(device).eval(), device)


def _from_state_dict(path: str) -> transformers.BertForQuestionAnswering:
  # The sizes are from the reference's bert_config.json.
  config = transformers.BertConfig(
    hidden_size=1024,
    num_hidden_layers=24,
    num_attention_heads=16,
    intermediate_size=4096,
  )
  model = transformers.BertForQuestionAnswering(config)
  try:
    tensors = torch.load(path, map_location='cpu', weights_only=True)
    missing = model.load_state_dict(tensors, strict=False).missing_keys
  except (RuntimeError, pickle.UnpicklingError, AttributeError) as error:
    raise ValueError(f'{path} is not a BERT-large: {error}') from error
  if missing:
    raise ValueError(
      f'{path} lacks {missing[0]} and {len(missing) - 1} other tensors. Pass'
      ' the state_dict of a BertForQuestionAnswering of BERT-large.'
    )
  return model


def main(argv: Sequence[str]) -> None:
  answering.main(argv, bert_systems.TorchBert, load)


if __name__ == '__main__':
  answering.keep_flags('precision', *run_lib.Run.__struct_fields__)
  program.run(main, takes_words=True)
