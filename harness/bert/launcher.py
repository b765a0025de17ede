"""BERT as a job sees it; see harness.systems.launch."""

from collections.abc import Mapping
import dataclasses

from harness.bert import bert_bundle
from harness.systems import launch
from serve import programs

ONNXRUNTIME = 'onnxruntime'
PYTORCH = 'pytorch'
KINDS = (ONNXRUNTIME, PYTORCH)

_PROGRAMS = {
  ONNXRUNTIME: programs.BERT_ONNXRUNTIME_RUN,
  PYTORCH: programs.BERT_PYTORCH_RUN,
}
_PACKAGES = {ONNXRUNTIME: 'onnxruntime', PYTORCH: 'torch'}


@dataclasses.dataclass(frozen=True)
class Bert:
  """A BERT in LoadGen's own process.

  Attributes:
    kind: what computes, of KINDS.
    model: Hugging Face directory, state_dict or ONNX file; None takes the
      bundled model.
    device: cpu or cuda.
    precision: number format; None: float32, or what an ONNX file has.
    batch_size: most samples computed together; None: as many as is usual.
    threads: of the CPU; 0: one for each core.
  """

  kind: str
  model: str | None = None
  device: str = 'cpu'
  precision: str | None = None
  batch_size: int | None = None
  threads: int = 0

  @property
  def framework(self) -> str:
    return _PACKAGES[self.kind]

  @property
  def parameters(self) -> Mapping[str, object]:
    return {
      'device': self.device,
      'precision': self.precision,
      'batch_size': self.batch_size,
      'threads': self.threads,
    }

  @property
  def inputs(self) -> Mapping[str, str]:
    return {'checkpoint': self.model or bert_bundle.model_dir()}

  def start(self, place: launch.Workplace) -> launch.Started:
    place.progress.stage(f'using BERT in {self.kind} on {self.device}')
    exact = self.precision in (None, 'float32') and not (
      self.model and self.model.endswith('.onnx')
    )
    return launch.Started(
      _PROGRAMS[self.kind],
      {'model': self.inputs['checkpoint'], **self.parameters},
      exact,
      slots=self.batch_size or 0,
    )
