"""Checks that the weights of a contender fit into the machine's free memory.

If a process asks for more memory, the system kills it, often together with
others.
"""

import psutil

from benchmarks import contenders

_BYTES = {'float32': 4, 'bfloat16': 2, 'int8': 1}
# This fraction of the memory stays free for programs, keys and values, and
# other processes.
_KEPT_FREE = 0.1


def shortage(contender: contenders.Contender, config: dict) -> str | None:
  """Returns why a contender cannot be loaded now, or None if it can.

  Args:
    contender: The contender to load.
    config: The config.json of the model.
  """
  needed = weight_bytes(contender, config)
  memory = psutil.virtual_memory()
  free = int(memory.available - _KEPT_FREE * memory.total)
  if needed <= free:
    return None
  return (
    f'{contender.name}: the weights need {needed / 1e9:.1f} GB, but only'
    f' {max(0, free) / 1e9:.1f} GB of memory are available. Use a machine with'
    ' more memory, or leave the engine out of --engines.'
  )


def weight_bytes(contender: contenders.Contender, config: dict) -> int:
  """Returns the bytes of the weights, including a conversion in memory.

  Two kinds of weights are converted from the model that transformers has
  loaded: all weights of OpenVINO, and those of CTranslate2 except int8.
  """
  layers, dim = config['n_layer'], config['n_embd']
  hidden = config['n_inner'] or 4 * dim
  weights = layers * (4 * dim**2 + 2 * dim * hidden)
  weights += 2 * config['vocab_size'] * dim
  # The contender itself rejects an unknown type.
  size = _BYTES.get(contender.dtype, 1)
  if contender.engine == contenders.OPENVINO:
    size = _BYTES['float32'] + size
  elif contender.engine == contenders.CTRANSLATE2 and size > 1:
    size *= 2
  return weights * size
