"""Describes the systems that answer the questions of the BERT benchmark."""

from collections.abc import Mapping
from typing import ClassVar

from harness.benchmarks import bert
from harness.systems import launch
from serve import programs


class _Bert(launch.Settings):
  """A BERT in LoadGen's own process.

  Attributes:
    checkpoint: The Hugging Face directory, state_dict or ONNX file; None: the
      bundled model.
    device: The device, cpu or cuda.
    precision: The number format; None: float32, or the format of an ONNX file.
    batch_size: The maximum number of samples that are computed together; None:
      8.
    threads: The number of CPU threads; 0: one for each core.
  """

  checkpoint: str | None = None
  device: str = 'cpu'
  precision: str | None = None
  batch_size: int | None = None
  threads: int = 0
  program: ClassVar[str] = ''
  kind: ClassVar[str] = ''

  @property
  def parameters(self) -> Mapping[str, object]:
    return {
      'device': self.device,
      'precision': self.precision,
      'batch_size': self.batch_size,
      'threads': self.threads,
    }

  @property
  def model(self) -> str:
    """The path of the model."""
    return self.checkpoint or bert.BUNDLE.model

  @property
  def inputs(self) -> Mapping[str, str]:
    return {'checkpoint': self.model}

  def start(self, workspace: launch.Workspace) -> launch.Started:
    workspace.progress.stage(f'using BERT in {self.kind} on {self.device}')
    # The number format of an ONNX file is unknown.
    exact = self.precision in launch.FLOAT32 and not self.model.endswith(
      '.onnx'
    )
    return launch.Started(self.program, self, exact, slots=self.batch_size or 0)


class OnnxRuntimeBert(_Bert):
  """A BERT in ONNX Runtime."""

  program = programs.BERT_ONNXRUNTIME_RUN
  kind = framework = 'onnxruntime'


class TorchBert(_Bert):
  """A BERT in PyTorch."""

  program = programs.BERT_PYTORCH_RUN
  kind = 'pytorch'
  framework = 'torch'
