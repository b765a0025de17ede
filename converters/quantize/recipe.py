"""How a checkpoint is quantized."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Options:
  """Settings of one quantization.

  Attributes:
    bits: of a code; codes of fewer than 8 bits are stored as int8 too.
    softmax: whether the head's matrix is quantized.
    clipping: search a bound below a row's largest value.
    smoothing: see `smoothing.choose`; None: sizes stay.
    gptq_inputs: most inputs of a matrix that is rounded by GPTQ's rule; needs
      calibration. 0: none.
  """

  bits: int = 8
  softmax: bool = False
  clipping: bool = False
  smoothing: float | None = None
  gptq_inputs: int = 0
