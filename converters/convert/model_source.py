"""Checks a model's tensors and builds its PAX variables one at a time."""

from collections.abc import Iterator
import dataclasses

import ml_dtypes
import numpy as np

from converters.hf import checkpoint
from saxml_ext.families import layout
from saxml_ext.pax import errors

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = {'float32': np.dtype(np.float32), 'bfloat16': _BFLOAT16}
_FLOATS = ('float32', 'bfloat16', 'float16', 'float64')
# The side of the squares that are copied when axes are transposed. The source
# and the target of a square fit in the L1 cache. Transposing 4096 x 4096
# float32 ran at 1.9 GB/s with 64, and at 0.5 GB/s without squares.
_SIDE = 64
# The number of values of a transposed source whose pages are in memory at once.
_BLOCK = 1 << 24
# The number of values to check at once.
_PIECE = 1 << 20


class ModelSource:
  """A checked model.

  Attributes:
    config: The config of the model, with the vocabulary of the PAX side.
    variables: The PAX variables in the order of conversion.
    checkpoint: The directory that they come from.
  """

  def __init__(self, base: str | checkpoint.Checkpoint):
    """Compares every tensor with the expected shape.

    Args:
      base: The Hugging Face directory, or an open checkpoint.

    Raises:
      errors.CheckpointError: Files are missing, damaged or refused, or tensors
        are missing, unexpected or have a wrong shape. The message names up to
        20 of these tensors.
    """
    self.checkpoint: checkpoint.Checkpoint = (
      checkpoint.HFCheckpoint(base) if isinstance(base, str) else base
    )
    config = self.checkpoint.config
    shapes = self.checkpoint.shapes
    family = self.checkpoint.family
    (name,) = family.tensors['embedding']
    rows = (shapes.get(name) or (0,))[0]
    self.config = dataclasses.replace(
      config, vocab_size=layout.pax_vocab_size(config.vocab_size, rows)
    )
    self._check_layer_count()
    (head,) = family.tensors['head']
    tied = config.tied_embeddings and head not in shapes
    self.variables = layout.variables(self.config, tied, family)
    self._check_tensors()

  def build(self, variable: layout.Variable, dtype: np.dtype) -> np.ndarray:
    """Reads the sources of a variable and returns the whole PAX array.

    Args:
      variable: The variable to build.
      dtype: The type of the result.

    Raises:
      errors.CheckpointError: A source is invalid; see `parts`.
    """
    # A product of matrices may round differently if its sizes differ. So the
    # ranges are those of `parts`.
    whole = np.empty(variable.shape, dtype)
    for begin, rows in self.parts(variable, dtype):
      whole[begin : begin + len(rows)] = rows
    return whole

  def parts(
    self, variable: layout.Variable, dtype: np.dtype
  ) -> Iterator[tuple[int, np.ndarray]]:
    """Builds a variable in parts, which needs little memory.

    Args:
      variable: The variable to build.
      dtype: The type of the parts.

    Yields:
      The first row and the array of rows of each part, in the order of
      ArraySpec.row_ranges.

    Raises:
      errors.CheckpointError: A source contains a NaN or an infinity, has a
        wrong type, or overflows in `dtype`.
    """
    for begin, end in variable.spec(dtype.name).row_ranges:
      rows = self._rows(variable, dtype, begin, end)
      for name in variable.sources:
        self.checkpoint.release(name, done=end == variable.shape[0])
      yield begin, rows

  def read_scales(self, variable: layout.Variable) -> np.ndarray | None:
    """Returns the scales of a variable whose sources have int8 codes.

    Args:
      variable: The variable.

    Returns:
      The scale of each value in the form of the PAX array, float32. None if
      there is no such scale for each output of all sources.
    """
    shape = variable.source_shape
    tensors = []
    for name in variable.sources:
      scale = self.checkpoint.read_scales(name)
      if scale is None:
        return None
      scale = scale[: shape[0], np.newaxis]
      tensors.append(np.broadcast_to(scale, shape))
    return variable.build(tensors) if tensors else None

  def _rows(
    self, variable: layout.Variable, dtype: np.dtype, begin: int, end: int
  ) -> np.ndarray:
    regions = variable.regions(begin, end)
    rows = np.empty((end - begin, *variable.shape[1:]), dtype)
    with np.errstate(over='ignore'):  # The check below reports overflows.
      if variable.axis == 1 and rows.ndim == 2:
        [(name, (part, columns))] = regions
        self._transpose(name, part.start, columns, rows)
      else:
        tensors = [self._read(name, region) for name, region in regions]
        done = 0
        for piece in variable.pieces(tensors, begin, end):
          copy_view(piece, rows[done : done + len(piece)])
          done += len(piece)
    if first_not_finite(rows) is not None:
      for name, region in regions:
        tensor = self._read(name, region)
        self._check_finite(name, region, tensor)
        with np.errstate(over='ignore'):
          converted = tensor.astype(dtype)
        self._check_finite(name, region, converted, f' as {dtype.name}')
    return rows

  def _transpose(
    self, name: str, start: int, columns: slice, out: np.ndarray
  ) -> None:
    """Copies columns of a source to the rows of `out` in blocks.

    The columns are spread over all pages of the source, and a head may have
    gigabytes. So the pages of each block are released.

    Args:
      name: The source.
      start: The first row to copy.
      columns: The columns to copy.
      out: The rows, [columns, rows of the source].
    """
    _, width = self.checkpoint.shapes[name]
    step = max(_SIDE, _BLOCK // width)
    for begin in range(0, out.shape[1], step):
      block = slice(begin, min(begin + step, out.shape[1]))
      rows = slice(start + block.start, start + block.stop)
      copy_view(self._read(name, (rows, columns)).T, out[:, block])
      self.checkpoint.release(name, done=False)

  def _read(self, name: str, region: tuple[slice, ...]) -> np.ndarray:
    """Returns a region of one source."""
    tensor = self.checkpoint.read(name, region)
    if tensor.dtype.name not in _FLOATS:
      raise self._error(
        name,
        f'has type {tensor.dtype.name}. Expected one of {", ".join(_FLOATS)}.',
      )
    return tensor

  def _check_finite(self, name, region, tensor, how='') -> None:
    where = first_not_finite(tensor)
    if where is not None:
      index = [part.start + i for part, i in zip(region, where)]
      raise self._error(
        name,
        f'has the value {tensor[where]}{how} at {index}. Expected finite'
        ' numbers.',
      )

  def _check_layer_count(self) -> None:
    # This check comes before the table of all layers is built, because a
    # malicious config may claim billions of layers.
    if self.config.num_layers > len(self.checkpoint.shapes):
      raise errors.CheckpointError(
        f'{self.checkpoint.directory}: {self.checkpoint.config_name} states'
        f' {self.config.num_layers} layers, but there are only '
        f'{len(self.checkpoint.shapes)} tensors.'
      )

  def _check_tensors(self) -> None:
    family = self.checkpoint.family
    problems = []
    expected = set()
    shapes = self.checkpoint.shapes
    for variable in self.variables:
      for name in variable.sources:
        expected.add(name)
        shape = shapes.get(name)
        if shape is None or not self._fits(shape, variable):
          problems.append(
            f'{name}: expected shape {list(variable.source_shape)}, found '
            + ('no such tensor' if shape is None else f'{list(shape)}')
          )
    for name in sorted(set(shapes) - expected):
      # A tied model may store the head anyway. The stored head is then used.
      if not family.buffers.fullmatch(name):
        problems.append(
          f'{name[:200]}: unexpected tensor of shape {list(shapes[name])}'
        )
    if problems:
      shown = ''.join(f'\n  {p}' for p in problems[:20])
      more = len(problems) - 20
      raise errors.CheckpointError(
        f'{self.checkpoint.directory} does not contain the {family.title} model'
        f' that {self.checkpoint.config_name} describes:{shown}'
        + (f'\n  and {more} more' if more > 0 else '')
      )

  def _fits(self, shape: tuple[int, ...], variable: layout.Variable) -> bool:
    expected = variable.source_shape
    if variable.vocab_axis is not None and layout.is_padded_vocab(
      self.config.vocab_size
    ):
      return shape[:1] >= expected[:1] and shape[1:] == expected[1:]
    return shape == expected

  def _error(self, name: str, text: str) -> errors.CheckpointError:
    return errors.CheckpointError(
      f'{self.checkpoint.file_of(name)}: tensor {name} {text}'
    )


def copy_view(view: np.ndarray, out: np.ndarray) -> None:
  """Copies `view` to `out`, and casts if the types differ.

  A view whose memory is ordered by the first axis, such as a transposed matrix,
  is copied in squares.

  Args:
    view: The array to copy.
    out: An array of the same shape, C-contiguous if it has more than two axes.
  """
  while view.ndim > 2 and len(view) == 1:
    view, out = view[0], out[0]
  if view.ndim == 1:
    view, out = view[:, np.newaxis], out[:, np.newaxis]
  source = view.reshape(len(view), -1)
  if not np.may_share_memory(source, view):
    # The axes after the first cannot be merged into one, so each index of the
    # second axis is copied as a matrix.
    for i in range(view.shape[1]):
      copy_view(view[:, i], out[:, i])
    return
  target = out.reshape(len(out), -1)
  widen = view.dtype == _BFLOAT16 and out.dtype == np.float32
  if widen:
    # A bfloat16 is the upper half of a float32. On integers both the copy and
    # the cast are simple.
    source, target = source.view(np.uint16), target.view(np.uint32)
  if source.strides[0] < source.strides[1]:
    _copy_squares(source, target)
  else:
    target[...] = source
  if widen:
    target <<= 16


def _copy_squares(source: np.ndarray, target: np.ndarray) -> None:
  rows, columns = source.shape
  for i in range(0, rows, _SIDE):
    for j in range(0, columns, _SIDE):
      square = np.s_[i : i + _SIDE, j : j + _SIDE]
      target[square] = source[square]


def first_not_finite(array: np.ndarray) -> tuple[int, ...] | None:
  """Returns the index of the first NaN or infinity, or None.

  Args:
    array: A C-contiguous array.
  """
  flat = array.reshape(-1)
  for begin in range(0, flat.size, _PIECE):
    piece = flat[begin : begin + _PIECE]
    if not _all_finite(piece):
      first = begin + int(np.argmin(np.isfinite(piece)))
      return tuple(int(i) for i in np.unravel_index(first, array.shape))
  return None


def _all_finite(piece: np.ndarray) -> bool:
  if piece.dtype == _BFLOAT16:
    # NaN and infinity have all exponent bits set. This check is faster than
    # isfinite of ml_dtypes by a factor of 3.
    return bool((piece.view(np.uint16) & 0x7FFF).max() < 0x7F80)
  return bool(np.isfinite(piece).all())
