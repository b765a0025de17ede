"""Weights that are split among devices, each process reading its own parts.

A model for several hosts may be too large for the memory of each of them, and
reading it whole on all of them would take the time of one. So of every variable
only the range is read that the devices of this process hold along each axis:
those parts together are a model with fewer heads, hidden units and tokens,
which `weights.PaxReader` makes as it makes a whole one.

The parts are bit for bit those of the whole model. One kind of matrix must be
read whole for that: a float one that is quantized as it is loaded and whose
products sum over a split axis (`post` and `down`), since its scales are those
of whole rows. They are read one at a time, and only the parts are kept.
"""

from collections.abc import Iterator, Mapping
import dataclasses
from typing import Any, Protocol

import jax
import numpy as np

from saxml_ext.engine import abstract_weights
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import logical
from saxml_ext.engine import sharding
from saxml_ext.engine import variables as variables_lib
from saxml_ext.engine import weights as weights_lib


class Spec(Protocol):
  """The description of a variable before it is read."""

  @property
  def shape(self) -> tuple[int, ...]:
    """The shape of the whole variable."""

  @property
  def dtype(self) -> Any:
    """The type of its elements, such as 'int8'."""


class Source(Protocol):
  """Variables that are read in parts, such as those of a checkpoint."""

  @property
  def specs(self) -> Mapping[str, Spec]:
    """The descriptions of all variables, by name."""

  def read_part(self, name: str, slices: tuple[slice, ...]) -> np.ndarray:
    """Reads a part of one."""


@dataclasses.dataclass(frozen=True)
class Range:
  """The range of an axis that a process holds: from begin to end of `size`.

  What goes beyond `size` is padding.
  """

  begin: int
  end: int
  size: int

  @property
  def length(self) -> int:
    return self.end - self.begin

  @property
  def whole(self) -> bool:
    return (self.begin, self.end) == (0, self.size)

  @property
  def stored(self) -> slice:
    """The part of the range that can be read."""
    return slice(min(self.begin, self.size), min(self.end, self.size))


@dataclasses.dataclass(frozen=True)
class Arrays:
  """A source of arrays, whose own specs they are."""

  specs: Mapping[str, np.ndarray]

  def read_part(self, name: str, slices: tuple[slice, ...]) -> np.ndarray:
    """See `Source.read_part`."""
    return self.specs[name][slices]


@dataclasses.dataclass(frozen=True)
class Form:
  """The form of the weights that are made of the variables.

  Attributes:
    dtype: as of `weights.PaxReader`, and so are the next two.
    quantization: which matrices are int8.
    quantize_head: whether the head is among them.
    stacked: whether the layers are stacked.
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

  Takes the memory of this process's parts and of about one variable; of stacked
  layers, that of one field's parts in all layers. Tells other processes
  nothing.

  Args:
    source: of variables with the names that `weights.PaxReader` wants.
    config: sizes of the whole model.
    form: what to make of them.
    mesh: of `sharding.make_mesh`; `sharding.check` must have passed.

  Returns:
    What `weights.from_pax`, `weights.stack`, `sharding.pad` and
    `sharding.place` would give.

  Raises:
    ValueError: as `weights.PaxReader`.
  """
  targets = structs(config, form, mesh)
  parts = _Parts(source, config, form, mesh)
  outside = {
    row.field: _placed(parts.leaf(row.field), _field(targets, row.field))
    for row in variables_lib.table_of(config.architecture)
    if not row.per_layer
  }
  layers = _layers(parts, config, targets.layers)
  return weights_lib.assemble(outside.get, layers)


def _layers(
  parts: '_Parts', config: config_lib.ModelConfig, targets: weights_lib.Layers
) -> weights_lib.Layers:
  """Returns all layers on the devices, in the form that their targets have."""
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
  of = abstract_weights.stacked if form.stacked else abstract_weights.unrolled
  shapes = of(config, form.dtype, form.quantization, form.quantize_head)
  padded = jax.eval_shape(lambda w: sharding.pad(mesh, w), shapes)
  return sharding.structs(mesh, padded)


def _field(tree: Any, field: str) -> Any:
  """Returns the field `layers.norm.scale` or `head` of a Layer or of Weights.

  None: models of this family do not have it.
  """
  for name in field.removeprefix('layers.').split('.'):
    tree = None if tree is None else getattr(tree, name)
  return tree


class View(Mapping):
  """Variables of which only the ranges are seen, padded where they go beyond.

  It has the names of the whole, and the shapes of a model with fewer heads,
  hidden units and tokens, so that whatever reads a checkpoint reads it. It is
  `weights.Parts`: of what all layers share, one is read.
  """

  def __init__(
    self,
    source: Source,
    config: config_lib.ModelConfig,
    ranges: Mapping[str, Range],
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
    """One layer of a variable that all of them share."""
    row, axes = _axes(self._table, name, self._repeated)
    return self._read(name, row, axes[1:], (slice(layer, layer + 1),))[0]

  def _read(
    self,
    name: str,
    row: variables_lib.Variable,
    axes: tuple[str, ...],
    leading: tuple[slice, ...],
  ) -> np.ndarray:
    """Reads what is seen of a variable's `axes`, and `leading` before them."""
    whole = tuple(self._source.specs[name].shape)[len(leading) :]
    shape = tuple(self._sizes[axis] for axis in axes)
    # A head's bias may be longer, see `weights.PaxReader`.
    longer = row.field == 'head_bias' and whole > shape
    if whole != shape and not longer:
      raise ValueError(
        f"{name} has shape {whole}; the model's sizes make it {shape}."
      )
    ranges = [self._ranges[axis] for axis in axes]
    slices = (*leading, *(r.stored for r in ranges))
    value = self._source.read_part(name, slices)
    missing = [(0, 0) for _ in leading]
    missing += [
      (0, r.length - n) for r, n in zip(ranges, value.shape[len(leading) :])
    ]
    if not any(after for _, after in missing):
      return value
    # As `sharding.pad` does.
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
  """The row of a variable, or of the matrix that it scales, and its axes."""
  matrix = name.removesuffix(variables_lib.SCALE_SUFFIX)
  row = table.named(matrix)
  if row is None:
    raise ValueError(f'{matrix} is no variable of such a model.')
  axes = row.axes
  if matrix != name:
    axes = tuple(a for a in axes if a not in row.contracted)
  return row, ('layers', *axes) if repeated and row.per_layer else axes


class _Parts:
  """Reads what the devices of this process hold of a model."""

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
    ranges = _ranges(config, mesh)
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
    sizes = variables_lib.axis_sizes(padded)
    whole = {
      a: Range(0, sizes[a], n)
      for a, n in variables_lib.axis_sizes(config).items()
    }
    self._whole = self._reader(View(source, config, whole), padded)

  def leaf(self, field: str, layer: int = 0) -> weights_lib.Matrix | None:
    """Returns this process's part of a field, or the whole if needed."""
    row = self._table.by_field.get(field)
    if row is None:
      return None
    reader = self._whole if self._needs_all(row, layer) else self._own
    return reader.leaf(field, layer)

  def _needs_all(self, row: variables_lib.Variable, layer: int) -> bool:
    """Returns True if the scales of a part depend on what is not in it."""
    form = self._form
    if form.quantization is None or not self._split & set(row.contracted):
      return False
    specs = self._source.specs
    below_prefix = row.below_prefix(layer, self._repeated)
    name = variables_lib.find(specs, below_prefix)
    return str(specs[name].dtype) != 'int8'

  def _reader(
    self, variables: Mapping[str, np.ndarray], config: config_lib.ModelConfig
  ) -> weights_lib.PaxReader:
    form = self._form
    return weights_lib.PaxReader(
      variables, config, form.dtype, form.quantization, form.quantize_head
    )


def _ranges(
  config: config_lib.ModelConfig, mesh: jax.sharding.Mesh
) -> dict[str, Range]:
  """Returns the range of each axis that this process's devices hold."""
  result = {}
  padded = variables_lib.axis_sizes(sharding.padded(mesh, config))
  padded['vocab'] = sharding.padded_vocab(mesh, config.vocab_size)
  for axis, size in variables_lib.axis_sizes(config).items():
    own = jax.sharding.NamedSharding(mesh, logical.spec(axis))
    [box] = _box(own, (padded[axis],))
    result[axis] = Range(box.start, box.stop, size)
  return result


def _box(
  own: jax.sharding.Sharding, shape: tuple[int, ...]
) -> tuple[slice, ...]:
  """Returns the smallest box that holds this process's part of an array."""
  indices = own.addressable_devices_indices_map(shape).values()
  bounds = [
    [each.indices(size)[:2] for each, size in zip(index, shape)]
    for index in indices
    if index is not None
  ]
  return tuple(
    slice(min(begin for begin, _ in dim), max(end for _, end in dim))
    for dim in zip(*bounds)
  )


def _cut(host: np.ndarray, box: tuple[slice, ...]) -> np.ndarray:
  """Returns the part of an array in a box, unless the array is that part."""
  if host.shape == tuple(each.stop - each.start for each in box):
    return host
  return host[box]


def _placed(part: Any, target: Any) -> Any:
  """Returns arrays on the devices, of this process's part of each or of all."""

  def place(part: jax.Array, like: jax.ShapeDtypeStruct) -> jax.Array:
    box = _box(like.sharding, like.shape)
    return _on_devices(_cut(np.asarray(part), box), box, like)

  return jax.tree.map(place, part, target)


def _on_devices(
  host: np.ndarray, box: tuple[slice, ...], like: jax.ShapeDtypeStruct
) -> jax.Array:
  """Returns an array of which `host` is the part in this process's box."""

  def piece(index: tuple[slice, ...]) -> np.ndarray:
    bounds = [each.indices(size)[:2] for each, size in zip(index, like.shape)]
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
  """Returns a field of all layers on the devices, with the stack's `target`."""
  likes, tree = jax.tree.flatten(target)
  boxes = [_box(like.sharding, like.shape) for like in likes]
  hosts = [
    np.empty([each.stop - each.start for each in box], like.dtype)
    for box, like in zip(boxes, likes)
  ]
  for index in range(config.num_layers):
    leaves = jax.tree.leaves(parts.leaf(field, index))
    for host, leaf, (_, *box) in zip(hosts, leaves, boxes):
      host[index] = _cut(np.asarray(leaf), tuple(box))
  return tree.unflatten(map(_on_devices, hosts, boxes, likes))
