"""Reads a Hugging Face model as PAX variables, one at a time.

A model of 6 billion parameters has 24 GB in float32. The engine converts one
variable after the other to its own arrays. Therefore only one variable at a
time needs to exist in float32.
"""

from collections.abc import Iterator, Mapping, Sequence
import math

import numpy as np

from converters.convert import model_source
from saxml_ext.common import memory
from saxml_ext.engine import config as config_lib
from saxml_ext.families import layout

# The number of values that are copied at a time.
_BLOCK = 1 << 22
# JAX's alignment, in bytes.
_LINE = 64


class Stored:
  """A model whose variables are read on demand.

  Attributes:
    config: The sizes of the model.
    variables: The float32 arrays by name.
  """

  def __init__(self, directory: str):
    """Opens a directory in Hugging Face's layout.

    Raises:
      errors.CheckpointError: The directory does not have a complete model.
    """
    source = model_source.ModelSource(directory)
    family, sizes = source.checkpoint.family, source.config
    self.config = config_lib.ModelConfig.from_pax(
      {v.name: v for v in source.variables},
      sizes.rotary_dim,
      rotary_base=sizes.rotary_base,
      rotary_scaling=sizes.rotary_scaling,
      ln_epsilon=sizes.ln_epsilon,
      ln_direct_scale=family.ln_direct_scale,
      architecture=family.architecture,
    )
    self.variables: Mapping[str, np.ndarray] = _Variables(source)


class _Variables(Mapping):
  """A mapping that reads each variable, as float32, on lookup."""

  def __init__(self, source: model_source.ModelSource):
    self._source = source
    self._by_name = {v.name: v for v in source.variables}
    # The tensors behind the latest result, if that was a view.
    self._lent: Sequence[str] = ()

  def __getitem__(self, name: str) -> np.ndarray:
    variable = self._by_name[name]
    # The memory of the previous variable is not needed any more.
    memory.give_back()
    for lent in self._lent:
      self._source.checkpoint.release(lent)
    self._lent = ()
    view = self._view(variable)
    if view is not None and not view.flags.c_contiguous:
      # A view is enough, because the engine copies it. The head is as large as
      # all layers.
      self._lent = variable.sources
      return view
    if view is None:
      return self._source.build(variable, np.dtype(np.float32))
    whole = _aligned(view.shape)
    step = max(1, _BLOCK * len(view) // view.size)
    for begin in range(0, len(view), step):
      whole[begin : begin + step] = view[begin : begin + step]
      # This releases the pages of the file that were read.
      self._source.checkpoint.release(variable.sources[0])
    return whole

  def _view(self, variable: layout.Variable) -> np.ndarray | None:
    """Returns a view of a variable that is one float32 tensor, else None."""
    if len(variable.sources) != 1:
      return None
    tensor = self._source.checkpoint.read(variable.sources[0])
    if variable.vocab_axis is not None:
      tensor = tensor[: self._source.config.vocab_size]
    (view,) = variable.pieces([tensor], 0, variable.shape[0])
    return view if view.dtype == np.float32 else None

  def __contains__(self, name: object) -> bool:
    return name in self._by_name

  def __iter__(self) -> Iterator[str]:
    return iter(self._by_name)

  def __len__(self) -> int:
    return len(self._by_name)


def _aligned(shape: tuple[int, ...]) -> np.ndarray:
  """Returns a float32 array that JAX can use without another copy."""
  size = 4 * math.prod(shape)
  memory_of = np.empty(size + _LINE, np.uint8)
  begin = -memory_of.ctypes.data % _LINE
  return memory_of[begin : begin + size].view(np.float32).reshape(shape)
