"""One LoadGen run of BERT in ONNX Runtime."""

from collections.abc import Sequence

from absl import flags

from harness.bert import run_flags
from harness.bert.models import graph
from harness.bert.models import onnxruntime_model
from harness.loadgen import runner
from saxml_ext.common import program

_DEVICE = flags.DEFINE_enum(
  'device', 'cpu', onnxruntime_model.DEVICES, 'What computes.'
)
_PRECISION = flags.DEFINE_enum(
  'precision',
  None,
  graph.PRECISIONS,
  'Of the graph that is made of a checkpoint. Default: float32. An ONNX file'
  ' has a precision already.',
)


def main(argv: Sequence[str]) -> None:
  del argv
  runner.main(
    lambda: run_flags.subject(
      lambda: onnxruntime_model.load(
        run_flags.model_path(),
        _PRECISION.value,
        _DEVICE.value,
        run_flags.threads(),
      )
    )
  )


if __name__ == '__main__':
  runner.mark_flags_as_required()
  program.run(main)
