"""Runs LoadGen once with BERT in ONNX Runtime, on a CPU or a CUDA device."""

from collections.abc import Sequence
import os

import numpy as np
import onnxruntime

from harness.bert import answering
from harness.bert import checkpoint
from harness.bert import graph
from harness.loadgen import run as run_lib
from harness.systems import bert_systems
from saxml_ext.common import program

CPU = 'cpu'
CUDA = 'cuda'
DEVICES = (CPU, CUDA)

_PROVIDERS = {CPU: 'CPUExecutionProvider', CUDA: 'CUDAExecutionProvider'}

# The names that exporters give to the inputs. The first one is used here and by
# Hugging Face, the second one by the reference.
_NAMES = (
  ('input_ids',),
  ('attention_mask', 'input_mask'),
  ('token_type_ids', 'segment_ids'),
)
_TYPES = {'tensor(int64)': np.int64, 'tensor(int32)': np.int32}


class OnnxRuntimeModel:
  """A graph in a session; see `answering.Model`."""

  def __init__(self, session: onnxruntime.InferenceSession, path: str):
    """Checks the inputs and outputs of a session.

    Args:
      session: The session of a BERT for question answering.
      path: The path of the model, for error messages.

    Raises:
      ValueError: The model has other inputs or outputs.
    """
    self._session = session
    inputs = {tensor.name: tensor for tensor in session.get_inputs()}
    outputs = [tensor.name for tensor in session.get_outputs()]
    self._inputs = [
      inputs[name] for names in _NAMES for name in names if name in inputs
    ]
    if not len(self._inputs) == len(inputs) == 3 or len(outputs) != 2:
      raise ValueError(
        f'{path} takes {", ".join(inputs)} and returns {", ".join(outputs)}. A'
        ' BERT for question answering takes input_ids, input_mask (or'
        ' attention_mask) and segment_ids (or token_type_ids), and returns'
        ' start and end logits.'
      )
    # Most exporters write the start logits first.
    self._outputs = sorted(outputs, key=lambda name: 'end' in name.lower())
    batch, length = self._inputs[0].shape
    self.fixed_batch = batch if isinstance(batch, int) else None
    self.fixed_length = length if isinstance(length, int) else None

  def logits(
    self, input_ids: np.ndarray, mask: np.ndarray, segment_ids: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray]:
    feed = {
      tensor.name: part.astype(_TYPES[tensor.type], copy=False)
      for tensor, part in zip(self._inputs, (input_ids, mask, segment_ids))
    }
    start, end = self._session.run(self._outputs, feed)
    return start, end


def load(
  path: str, precision: str | None, device: str, threads: int
) -> OnnxRuntimeModel:
  """Loads a model into a session.

  Args:
    path: An ONNX file, or a checkpoint (see `checkpoint.load`). For a
      checkpoint, the graph is built first.
    precision: The precision of that graph, one of graph.PRECISIONS; None:
      float32. It must be None for an ONNX file, which already has a precision.
    device: The device, one of DEVICES.
    threads: The number of CPU threads for one batch; 0: one for each core.

  Raises:
    OSError: The file does not exist.
    ValueError: The file is not such a model, or the device cannot run it.
  """
  if precision is not None:
    answering.check_choice('precision', precision, graph.PRECISIONS)
  providers = providers_for(device, onnxruntime.get_available_providers())
  model: str | bytes = path
  if path.endswith('.onnx'):
    if not os.path.isfile(path):
      raise FileNotFoundError(
        f'{path} does not exist. Create it from a checkpoint with'
        ' //harness/bert:export.'
      )
    if precision:
      raise ValueError(
        f'{path} is already a graph, so --precision={precision} cannot change'
        ' it. Omit the flag, or pass the checkpoint.'
      )
  else:
    if precision == graph.INT8 and device != CPU:
      raise ValueError(
        f'--precision={precision} is only for CPUs. On CUDA, use'
        f' --precision={graph.FLOAT16}.'
      )
    model = graph.build(
      checkpoint.load(path), precision or graph.FLOAT32
    ).SerializeToString()
  options = onnxruntime.SessionOptions()
  options.intra_op_num_threads = threads
  try:
    session = onnxruntime.InferenceSession(model, options, providers=providers)
  except Exception as error:  # Its errors have no common base.
    raise ValueError(f'ONNX Runtime cannot load {path}: {error}') from error
  return OnnxRuntimeModel(session, path)


def providers_for(device: str, available: Sequence[str]) -> list[str]:
  """Returns the execution providers of a device, the best first.

  Raises:
    ValueError: This ONNX Runtime has no provider for the device.
  """
  answering.check_choice('device', device, DEVICES)
  if _PROVIDERS[device] not in available:
    raise ValueError(
      f'--device={device} needs {_PROVIDERS[device]}, but ONNX Runtime'
      f' {onnxruntime.__version__} has only {", ".join(available)}. Install'
      ' onnxruntime-gpu instead of onnxruntime (see docs/bert.md), or use'
      ' --device=cpu.'
    )
  # The CPU's provider is last. It has the operators that the device's lacks.
  return list(dict.fromkeys([_PROVIDERS[device], _PROVIDERS[CPU]]))


def main(argv: Sequence[str]) -> None:
  answering.main(argv, bert_systems.OnnxRuntimeBert, load)


if __name__ == '__main__':
  answering.keep_flags('precision', *run_lib.Run.__struct_fields__)
  program.run(main, takes_words=True)
