"""One LoadGen run of BERT in PyTorch."""

from collections.abc import Sequence

from absl import flags

from harness.bert import run_flags
from harness.bert.models import torch_model
from harness.loadgen import runner
from saxml_ext.common import program

_DEVICE = flags.DEFINE_enum(
  'device', 'cpu', torch_model.DEVICES, 'What computes.'
)
_PRECISION = flags.DEFINE_enum(
  'precision',
  torch_model.FLOAT32,
  torch_model.PRECISIONS,
  'Type of the weights and of the computation.',
)


def main(argv: Sequence[str]) -> None:
  del argv
  runner.main(
    lambda: run_flags.subject(
      lambda: torch_model.load(
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
