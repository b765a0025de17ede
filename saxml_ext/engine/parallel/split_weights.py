"""Loads weights that are split among devices; a process reads only its parts.

A model for several hosts may be too large for the memory of one host. If all
hosts read it whole, they would also take as long as a single host. So a process
reads, along each axis, only the range that its devices hold. These parts form a
model with fewer heads, hidden units and tokens. `weights.PaxReader` converts
them like a whole model.

The parts equal those of the whole model bit for bit. This requires some
matrices to be read whole: float matrices that are quantized during loading and
whose products sum over a split axis (`post` and `down`). Their scales depend on
whole rows. These matrices are read one at a time, and only the parts are kept.
"""

from collections.abc import Iterator, Mapping
import dataclasses
from typing import Any, Protocol

import jax
import numpy as np

from saxml_ext.engine import abstract_weights
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import sharding
from saxml_ext.engine import variables as variables_lib
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.parallel import ranges as ranges_lib


class Spec(Protocol):
  """The description of a variable before it is read."""

  @property
  def shape(self) -> tuple[int, ...]:
    """The shape of the whole variable."""

  @property
  def dtype(self) -> Any:
    """The type of its elements, such as 'int8'."""


class Source(Protocol):
  """Variables that can be read in parts, such as those of a checkpoint."""

  @property
  def specs(self) -> Mapping[str, Spec]:
    """The descriptions of all variables, by name."""

  def read_part(self, name: str, slices: tuple[slice, ...]) -> np.ndarray:
    """Reads a part of one variable."""


@dataclasses.dataclass(frozen=True)
class Form:
  """The form of the weights to load.

  Attributes:
    dtype: The dtype of float weights, as in `weights.PaxReader`.
    quantization: The quantization of matrices, as in `weights.PaxReader`.
    quantize_head: True if the head is quantized too.
    stacked: True if the layers are stacked.
  """

  dtype: str = 'float32'
  quantization: str | None = None
  quantize_head: bool = True
  stacked: bool = False


def from_pax(
  source: Source,
  config: config_lib.ModelConfig,
  form: Form,
  mesh: jax.sharding.Mesh,
) -> weights_lib.Weights:
  """Returns the weights of a model on the devices of a mesh.

  The memory required is that of this process's parts plus about one variable.
  For stacked layers it is one field's parts in all layers. The function does
  not communicate with other processes.

  Args:
    source: The variables, with the names that `weights.PaxReader` expects.
    config: The configuration of the whole model.
    form: The form of the weights.
    mesh: The mesh from `sharding.make_mesh`. It must satisfy `sharding.check`.

  Returns:
    The same weights as `weights.from_pax`, `weights.stack`, `sharding.pad` and
    `sharding.shard` in sequence.

  Raises:
    ValueError: The variables do not fit the model, as in `weights.PaxReader`.
  """
  targets = structs(config, form, mesh)
  parts = _Parts(source, config, form, mesh)
  outside = {
    row.field: _placed(parts.leaf(row.field), _field(targets, row.field))
    for row in variables_lib.table_of(config.architecture)
    if not row.per_layer
  }
  if 'head_bias' not in outside:
    like = targets.head_bias
    added = like.shape[0] - config.vocab_size
    bias = np.zeros(config.vocab_size, like.dtype)
    # The same as in `sharding.pad`.
    bias = np.pad(bias, (0, added), constant_values=-np.inf)
    outside['head_bias'] = _placed(bias, like)
  layers = _layers(parts, config, targets.layers)
  return weights_lib.assemble(outside.get, layers)


def _layers(
  parts: '_Parts', config: config_lib.ModelConfig, targets: weights_lib.Layers
) -> weights_lib.Layers:
  """Returns all layers on the devices, in the form of `targets`."""
  if not isinstance(targets, tuple):
    return weights_lib.assemble_layer(
      lambda field: _stack(parts, field, config, _field(targets, field))
    )

  def layer(index: int, target: weights_lib.Layer) -> weights_lib.Layer:
    return weights_lib.assemble_layer(
      lambda field: _placed(parts.leaf(field, index), _field(target, field))
    )

  return tuple(layer(index, target) for index, target in enumerate(targets))


def structs(
  config: config_lib.ModelConfig, form: Form, mesh: jax.sharding.Mesh
) -> weights_lib.Weights:
  """Returns the shapes of the weights on a mesh, with their shardings."""
  shapes = abstract_weights.shapes(config, *dataclasses.astuple(form))
  padded = jax.eval_shape(lambda w: sharding.pad(mesh, w), shapes)
  return sharding.structs(mesh, padded)


def _field(tree: Any, field: str) -> Any:
  """Returns the field `layers.norm.scale` or `head` of a Layer or of Weights.

  The result is None if models of this family do not have the field.
  """
  for name in field.removeprefix('layers.').split('.'):
    tree = None if tree is None else getattr(tree, name)
  return tree


class View(Mapping):
  """The given ranges of variables, padded if they exceed the variables.

  It has the names of the whole model and the shapes of a model with fewer
  heads, hidden units and tokens. So any code that reads a checkpoint can read
  it. It is a `stored_variables.Parts`: a single layer of a repeated variable can be
  read.
  """

  def __init__(
    self,
    source: Source,
    config: config_lib.ModelConfig,
    ranges: Mapping[str, ranges_lib.Range],
  ):
    self._source = source
    self._table = variables_lib.table_of(config.architecture)
    self._repeated = variables_lib.is_repeated(source.specs)
    self._sizes = variables_lib.axis_sizes(config)
    self._ranges = ranges

  def __getitem__(self, name: str) -> np.ndarray:
    row, axes = _axes(self._table, name, self._repeated)
    return self._read(name, row, axes, ())

  def read_part(self, name: str, layer: int) -> np.ndarray:
    """Reads one layer of a variable that all layers share."""
    row, axes = _axes(self._table, name, self._repeated)
    return self._read(name, row, axes[1:], (slice(layer, layer + 1),))[0]

  def _read(
    self,
    name: str,
    row: variables_lib.Variable,
    axes: tuple[str, ...],
    leading: tuple[slice, ...],
  ) -> np.ndarray:
    """Reads the ranges of a variable's `axes`, after the indices `leading`."""
    whole = tuple(self._source.specs[name].shape)[len(leading) :]
    shape = tuple(self._sizes[axis] for axis in axes)
    # A head's bias may be longer; see `weights.PaxReader`.
    longer = row.field == 'head_bias' and whole > shape
    if whole != shape and not longer:
      raise ValueError(
        f"{name} has shape {whole}, but the model's sizes require {shape}."
      )
    ranges = [self._ranges[axis] for axis in axes]
    slices = (*leading, *(r.stored for r in ranges))
    value = self._source.read_part(name, slices)
    for dim, axis_range in enumerate(ranges, len(leading)):
      value = axis_range.repeated(value, dim)
    missing = [(0, 0) for _ in leading]
    missing += [
      (0, r.length - n) for r, n in zip(ranges, value.shape[len(leading) :])
    ]
    if not any(after for _, after in missing):
      return value
    # The padding is the same as in `sharding.pad`.
    fill = -np.inf if row.field == 'head_bias' else 0
    return np.pad(value, missing, constant_values=fill)

  def __contains__(self, name: object) -> bool:
    return name in self._source.specs

  def __iter__(self) -> Iterator[str]:
    return iter(self._source.specs)

  def __len__(self) -> int:
    return len(self._source.specs)


def _axes(
  table: variables_lib.Table, name: str, repeated: bool
) -> tuple[variables_lib.Variable, tuple[str, ...]]:
  """Returns a variable's row, or that of the matrix it scales, and its axes."""
  matrix = name.removesuffix(variables_lib.SCALE_SUFFIX)
  row = table.named(matrix)
  if row is None:
    raise ValueError(f'{matrix} is not a variable of this kind of model.')
  axes = row.axes
  if matrix != name:
    axes = tuple(a for a in axes if a not in row.contracted)
  return row, ('layers', *axes) if repeated and row.per_layer else axes


class _Parts:
  """Reads the parts of a model that the devices of this process hold."""

  def __init__(
    self,
    source: Source,
    config: config_lib.ModelConfig,
    form: Form,
    mesh: jax.sharding.Mesh,
  ):
    self._form = form
    self._table = variables_lib.table_of(config.architecture)
    self._repeated = variables_lib.is_repeated(source.specs)
    ranges = ranges_lib.local_ranges(config, mesh)
    self._split = {axis for axis, r in ranges.items() if not r.whole}
    own = dataclasses.replace(
      config,
      num_heads=ranges['heads'].length,
      num_kv_heads=ranges['kv_heads'].length,
      hidden_dim=ranges['hidden'].length,
      vocab_size=ranges['vocab'].length,
    )
    self._source = source
    self._own = self._reader(View(source, config, ranges), own)
    padded = sharding.padded(mesh, config)
    whole = ranges_lib.whole(config, mesh)
    self._whole = self._reader(View(source, config, whole), padded)

  def leaf(self, field: str, layer: int = 0) -> weights_lib.Matrix | None:
    """Returns this process's part of a field, or the whole if necessary."""
    row = self._table.by_field.get(field)
    if row is None:
      return None
    reader = self._whole if self._needs_all(row, layer) else self._own
    return reader.leaf(field, layer)

  def _needs_all(self, row: variables_lib.Variable, layer: int) -> bool:
    """Returns True if the scales of a part depend on values outside it."""
    form = self._form
    if form.quantization is None or not self._split & set(row.contracted):
      return False
    specs = self._source.specs
    name = variables_lib.find(specs, row.below_prefix(layer, self._repeated))
    return str(specs[name].dtype) != 'int8'

  def _reader(
    self, variables: Mapping[str, np.ndarray], config: config_lib.ModelConfig
  ) -> weights_lib.PaxReader:
    form = self._form
    return weights_lib.PaxReader(
      variables, config, form.dtype, form.quantization, form.quantize_head
    )


def _cut(host: np.ndarray, box: tuple[slice, ...]) -> np.ndarray:
  """Returns the given box of an array; the array may be that box already."""
  if host.shape == tuple(part.stop - part.start for part in box):
    return host
  return host[box]


def _placed(part: Any, target: Any) -> Any:
  """Returns arrays on the devices, from whole arrays or from parts."""

  def put(part: jax.Array, like: jax.ShapeDtypeStruct) -> jax.Array:
    box = ranges_lib.box(like.sharding, like.shape)
    return _on_devices(_cut(np.asarray(part), box), box, like)

  return jax.tree.map(put, part, target)


def _on_devices(
  host: np.ndarray, box: tuple[slice, ...], like: jax.ShapeDtypeStruct
) -> jax.Array:
  """Returns an array on the devices; `host` is its part in `box`."""

  def piece(index: tuple[slice, ...]) -> np.ndarray:
    bounds = [part.indices(size)[:2] for part, size in zip(index, like.shape)]
    return host[
      tuple(
        slice(begin - outer.start, end - outer.start)
        for (begin, end), outer in zip(bounds, box)
      )
    ]

  assert host.dtype == like.dtype, (host.dtype, like)
  return jax.make_array_from_callback(like.shape, like.sharding, piece)


def _stack(
  parts: _Parts, field: str, config: config_lib.ModelConfig, target: Any
) -> Any:
  """Returns a field of all layers on the devices, stacked as `target`."""
  likes, tree = jax.tree.flatten(target)
  boxes = [ranges_lib.box(like.sharding, like.shape) for like in likes]
  hosts = [
    np.empty([part.stop - part.start for part in box], like.dtype)
    for box, like in zip(boxes, likes)
  ]
  for index in range(config.num_layers):
    leaves = jax.tree.leaves(parts.leaf(field, index))
    for host, leaf, (_, *box) in zip(hosts, leaves, boxes):
      host[index] = _cut(np.asarray(leaf), tuple(box))
  return tree.unflatten(map(_on_devices, hosts, boxes, likes))
