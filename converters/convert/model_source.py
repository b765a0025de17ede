"""Turns a Hugging Face model into PAX variables, checked, one at a time."""

from collections.abc import Iterator

import ml_dtypes
import numpy as np

from converters.convert import blocks
from converters.hf import checkpoint
from saxml_ext.families import layout
from saxml_ext.pax import errors
from saxml_ext.pax import metadata

DTYPES = {
  'float32': np.dtype(np.float32),
  'bfloat16': np.dtype(ml_dtypes.bfloat16),
}
_FLOATS = ('float32', 'bfloat16', 'float16', 'float64')


class ModelSource:
  """A checked model.

  Attributes:
    shape: sizes of the PAX model.
    variables: the PAX variables in the order of conversion.
    checkpoint: the directory that they come from.
  """

  def __init__(self, directory: str):
    """Opens the directory and compares every tensor with what is expected.

    Raises:
      errors.CheckpointError: files are missing, damaged or refused, or tensors
        are missing, unexpected or of a wrong shape; all of those are named.
    """
    self.checkpoint = checkpoint.HFCheckpoint(directory)
    config = self.checkpoint.config
    shapes = self.checkpoint.shapes
    family = self.checkpoint.family
    (name,) = family.tensors['embedding']
    rows = (shapes.get(name) or (0,))[0]
    self.shape = layout.ModelShape(
      num_layers=config.num_layers,
      model_dim=config.model_dim,
      num_heads=config.num_heads,
      num_kv_heads=config.num_kv_heads,
      hidden_dim=config.hidden_dim,
      vocab_size=layout.pax_vocab_size(config.vocab_size, rows),
    )
    self._check_layer_count()
    (head,) = family.tensors['head']
    tied = config.tied_embeddings and head not in shapes
    self.variables = layout.variables(self.shape, tied, family)
    self._check_tensors()

  def build(self, variable: layout.Variable, dtype: np.dtype) -> np.ndarray:
    """Reads a variable's sources and makes the whole PAX array of `dtype`.

    Raises:
      errors.CheckpointError: see parts.
    """
    rows = self._rows(variable, dtype, 0, variable.shape[0])
    self._release(variable)
    return rows

  def parts(
    self, variable: layout.Variable, dtype: np.dtype
  ) -> Iterator[tuple[int, np.ndarray]]:
    """Makes a variable in parts, so that little memory is needed.

    Yields:
      First row and rows of each part of ArraySpec.row_ranges, in order.

    Raises:
      errors.CheckpointError: a source has a NaN or an infinity, is of a wrong
        type, or overflows in `dtype`.
    """
    spec = metadata.ArraySpec(variable.shape, dtype.name)
    for begin, end in spec.row_ranges:
      yield begin, self._rows(variable, dtype, begin, end)
    self._release(variable)

  def _release(self, variable: layout.Variable) -> None:
    for name in variable.sources:
      self.checkpoint.release(name)

  def _rows(
    self, variable: layout.Variable, dtype: np.dtype, begin: int, end: int
  ) -> np.ndarray:
    tensors = [self._read(variable, name) for name in variable.sources]
    rows = np.empty((end - begin, *variable.shape[1:]), dtype)
    done = 0
    with np.errstate(over='ignore'):  # told by the check below
      for piece in variable.pieces(tensors, begin, end):
        blocks.copy(piece, rows[done : done + len(piece)])
        done += len(piece)
    if blocks.first_not_finite(rows) is not None:
      for name, tensor in zip(variable.sources, tensors):
        self._check_finite(name, tensor)
        with np.errstate(over='ignore'):
          converted = tensor.astype(dtype)
        self._check_finite(name, converted, f' as {dtype.name}')
    return rows

  def _read(self, variable: layout.Variable, name: str) -> np.ndarray:
    """A view of one source, its vocabulary cut."""
    tensor = self.checkpoint.read(name)
    if tensor.dtype.name not in _FLOATS:
      raise self._error(
        name,
        f'has type {tensor.dtype.name}; expected one of {", ".join(_FLOATS)}',
      )
    if variable.vocab_axis is not None:
      tensor = tensor[: self.shape.vocab_size]
    return tensor

  def _check_finite(self, name, tensor, how='') -> None:
    where = blocks.first_not_finite(tensor)
    if where is not None:
      raise self._error(
        name,
        f'has the value {tensor[where]}{how} at {list(where)}; expected '
        'finite numbers',
      )

  def _check_layer_count(self) -> None:
    # Before a table of all layers is made: the config may claim billions.
    if self.shape.num_layers > len(self.checkpoint.shapes):
      raise errors.CheckpointError(
        f'{self.checkpoint.directory}: config.json says '
        f'{self.shape.num_layers} layers but there are only '
        f'{len(self.checkpoint.shapes)} tensors'
      )

  def _check_tensors(self) -> None:
    family = self.checkpoint.family
    problems = []
    expected = set()
    shapes = self.checkpoint.shapes
    for variable in self.variables:
      for name in variable.sources:
        expected.add(name)
        if name not in shapes:
          problems.append(
            f'{name}: missing; expected shape {list(variable.source_shape)}'
          )
        elif not self._fits(shapes[name], variable):
          problems.append(
            f'{name}: expected shape '
            f'{list(variable.source_shape)}, found '
            f'{list(shapes[name])}'
          )
    for name in sorted(set(shapes) - expected):
      # A tied model may store the head all the same; it is then used.
      if not family.buffers.fullmatch(name):
        problems.append(
          f'{name[:200]}: unexpected, shape '
          f'{list(shapes[name])}; a {family.title} has no such tensor'
        )
    if problems:
      shown = ''.join(f'\n  {p}' for p in problems[:20])
      more = len(problems) - 20
      raise errors.CheckpointError(
        f'{self.checkpoint.directory} does not hold the {family.title} that its '
        f'config.json describes:{shown}'
        + (f'\n  and {more} more' if more > 0 else '')
      )

  def _fits(self, found: tuple[int, ...], variable: layout.Variable) -> bool:
    expected = variable.source_shape
    if variable.vocab_axis is not None and layout.is_padded_vocab(
      self.shape.vocab_size
    ):
      return found[:1] >= expected[:1] and found[1:] == expected[1:]
    return found == expected

  def _error(self, name: str, text: str) -> errors.CheckpointError:
    return errors.CheckpointError(
      f'{self.checkpoint.file_of(name)}: tensor {name} {text}'
    )
