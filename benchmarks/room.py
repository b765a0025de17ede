"""Checks that the weights of a contender fit into the machine's free memory.

If a process asks for more memory, the system kills it, often together with
others.
"""

import psutil

from benchmarks import contenders
from benchmarks import models

# This fraction of the memory stays free for programs, keys and values, and
# other processes.
_KEPT_FREE = 0.1


def shortage(
  contender: contenders.Contender, sizes: models.Sizes
) -> str | None:
  """Returns why a contender cannot be loaded now, or None if it can.

  Args:
    contender: The contender to load.
    sizes: The sizes of the model.
  """
  needed = weight_bytes(contender, sizes)
  memory = psutil.virtual_memory()
  free = int(memory.available - _KEPT_FREE * memory.total)
  if needed <= free:
    return None
  return (
    f'{contender.name}: the weights need {needed / 1e9:.1f} GB, but only'
    f' {max(0, free) / 1e9:.1f} GB of memory are available. Use a machine with'
    ' more memory, or leave the engine out of --engines.'
  )


def weight_bytes(contender: contenders.Contender, sizes: models.Sizes) -> int:
  """Returns the bytes of the weights, including a conversion in memory.

  Two kinds of weights are converted from the model that transformers has
  loaded: all weights of OpenVINO, and those of CTranslate2 except int8. Our engine
  has an int8 head beside an embedding that is tied to it.
  """
  heads = 1 if sizes.tied and contender.engine != contenders.OURS else 2
  weights = sizes.layer_weights + heads * sizes.head_weights
  # The contender itself rejects an unknown type.
  size = models.BYTES.get(contender.dtype, 1)
  if contender.engine == contenders.OPENVINO:
    size = models.BYTES['float32'] + size
  elif contender.engine == contenders.CTRANSLATE2 and size > 1:
    size *= 2
  return int(weights * size)
