"""Splits the dimensions of arrays among devices.

Every dimension has a logical name. `variables.py` names those of weights, and
this module names those of state. The table in `logical.py` maps each name to
the axis of the device mesh that splits it. XLA derives everything else,
including the collectives, so the programs do not depend on devices.

The devices of `model` share the prefill of a prompt. Those of `data` prefill
different prompts; see `attention/slot_parts.py`.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import math
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine import architecture
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import layers as layers_lib
from saxml_ext.engine import logical
from saxml_ext.engine import state
from saxml_ext.engine import variables
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.attention import cache
from saxml_ext.engine.numerics import quant

# The dimensions of all arrays in a cache block, after the layers. Further
# dimensions are not split.
_BLOCK = ('slots', 'kv_heads')

Tree = TypeVar('Tree')


def make_mesh(
  shape: Sequence[int], devices: Sequence[jax.Device] | None = None
) -> jax.sharding.Mesh:
  """Returns a mesh of `shape` [replica, data, model] of the first devices.

  If TPU hosts have as many chips as the axis `model`, that axis consists of the
  chips of one host in the order of a ring. JAX would choose a line of chips on
  several hosts.

  Args:
    shape: The sizes of the axes.
    devices: The devices to choose from. None stands for those of this process's
      backend.

  Raises:
    ValueError: The shape is invalid, or there are not enough devices.
  """
  devices = jax.devices() if devices is None else devices
  if len(shape) != len(logical.MESH_AXES) or min(shape) < 1:
    raise ValueError(
      f"the mesh's shape is {list(shape)}, but must have one size of at least"
      f' 1 for each of {logical.MESH_AXES}.'
    )
  size = math.prod(shape)
  if size > len(devices):
    raise ValueError(
      f'a mesh of shape {list(shape)} needs {size} devices, but there are only'
      f' {len(devices)}.'
    )
  auto = (jax.sharding.AxisType.Auto,) * len(logical.MESH_AXES)
  chosen = devices[:size]
  rings = _rings(chosen, shape[2])
  if rings is None:
    return jax.make_mesh(shape, logical.MESH_AXES, auto, devices=chosen)
  grid = np.array(rings, object).reshape(shape)
  return jax.sharding.Mesh(grid, logical.MESH_AXES, axis_types=auto)


def _rings(
  devices: Sequence[jax.Device], size: int
) -> list[list[jax.Device]] | None:
  """Returns the TPUs of each host, if several hosts have `size` of them.

  The chips of a host are neighbors. Two rows of chips form a ring. The result
  is None in all other cases.
  """
  hosts: dict[int, list[jax.Device]] = {}
  for device in devices:
    hosts.setdefault(device.process_index, []).append(device)
  alike = all(len(own) == size for own in hosts.values())
  if devices[0].platform != 'tpu' or len(hosts) == 1 or not alike:
    return None

  def along(device: jax.Device) -> tuple[int, ...]:
    x, y, z = device.coords
    return z, y, -x if y % 2 else x, device.core_on_chip

  return [sorted(hosts[index], key=along) for index in sorted(hosts)]


def check(
  mesh: jax.sharding.Mesh, model: config_lib.ModelConfig, num_slots: int
) -> None:
  """Raises ValueError if a dimension cannot be split evenly.

  Heads and vocabulary can always be split after `pad`.
  """
  if model.architecture.qk_norm == architecture.ALL:
    parts = _parts(mesh, 'heads')
    if parts > 1:
      raise ValueError(
        f'the mesh {dict(mesh.shape)} splits heads into {parts} parts, but'
        ' qk_norm "all" normalizes all heads together. Choose a mesh whose last'
        ' size is 1.'
      )
  for name, dim, size in (
    ('hidden_dim', 'hidden', model.hidden_dim),
    ('num_slots', 'slots', num_slots),
  ):
    parts = _parts(mesh, dim)
    if size % parts:
      raise ValueError(
        f'{name} is {size}, but the mesh {dict(mesh.shape)} splits it into'
        f' {parts} parts. Choose a mesh that divides it.'
      )


def pad(
  mesh: jax.sharding.Mesh, weights: weights_lib.Weights
) -> weights_lib.Weights:
  """Pads a model so that devices have equal numbers of heads and token tiles.

  The tiles are also whole blocks of `search.top_k`. The tokens added to GPT-J's
  50,401 have an embedding of zeros and a logit of minus infinity. So they are
  never chosen, and they change no probability.

  If there are fewer heads of keys than devices, each head of keys is repeated
  on several devices, with equal shares of its queries, as `kv_repeats` says.
  The order of the queries stays.

  Published meshes do not divide the heads: LmCloudSpmd2B has 24 on 16 or 32
  chips, and 175B has 96 on 64. If queries share keys, heads of keys are added
  together with their queries. A head of zeros has values of zeros for any
  attention, and its rows of `post` are zeros too. So it changes no result, not
  even the scales of int8. It takes as much memory and time as any other head.
  """
  parts = _parts(mesh, 'kv_heads')
  layers = weights.layers
  weights = dataclasses.replace(
    weights,
    layers=tuple(_pad_heads(layer, parts) for layer in layers)
    if isinstance(layers, tuple)
    else _pad_heads(layers, parts),
  )
  size = weights.head_bias.shape[0]
  missing = padded_vocab(mesh, size) - size
  if not missing:
    return weights
  head = weights.head
  if isinstance(head, quant.QuantizedArray):
    head = jax.tree.map(lambda x: _fill(x, 0, missing), head)
  elif head is not None:
    head = _fill(head, 1, missing)
  return dataclasses.replace(
    weights,
    embedding=_fill(weights.embedding, 0, missing),
    head=head,
    head_bias=_fill(weights.head_bias, 0, missing, -jnp.inf),
  )


def _pad_heads(layer: weights_lib.Layer, parts: int) -> weights_lib.Layer:
  """Returns a layer, or the stack of all layers, with padded heads."""
  qkv, post, bias = layer.qkv, layer.post, layer.qkv_bias
  if isinstance(qkv, quant.QuantizedArray):
    dims = qkv.scale.shape
  else:
    dims = qkv.shape[:-1]
  *leading, heads, rows, width = dims
  repeats = _repeats(heads, rows - 2, parts)
  if repeats > 1:
    return _repeat_keys(layer, len(leading), dims, repeats)
  missing = -heads % parts
  if not missing:
    return layer
  at = len(leading)
  if isinstance(qkv, quant.QuantizedArray):
    codes = _fill(qkv.values, at, missing * rows * width)
    scale = _fill(qkv.scale, at, missing)
    qkv = dataclasses.replace(qkv, values=codes, scale=scale)
  else:
    qkv = _fill(qkv, at, missing)
  if isinstance(post, quant.QuantizedArray):
    values = _fill(post.values, at + 1, missing * (rows - 2) * width)
    post = dataclasses.replace(post, values=values)
  else:
    post = _fill(post, at, missing * (rows - 2))
  if bias is not None:
    bias = _fill(bias, at, missing)
  return dataclasses.replace(layer, qkv=qkv, qkv_bias=bias, post=post)


def _repeats(kv_heads: int, group: int, parts: int) -> int:
  """Returns the number of devices that hold the same head of keys."""
  repeats, rest = divmod(parts, kv_heads)
  return 1 if rest or not repeats or group % repeats else repeats


def kv_repeats(mesh: jax.sharding.Mesh, model: config_lib.ModelConfig) -> int:
  """Returns the number of times that `pad` repeats each head of keys.

  It is 1 if devices do not divide evenly into heads of keys, or their queries
  into these devices. Then `pad` adds heads of zeros.
  """
  return _repeats(model.kv_heads, model.group, _parts(mesh, 'kv_heads'))


def _repeat_keys(
  layer: weights_lib.Layer, at: int, dims: Sequence[int], repeats: int
) -> weights_lib.Layer:
  """Returns a layer, or the stack of all, whose heads of keys are repeated.

  Args:
    layer: The layer.
    at: The dimension of the heads of keys.
    dims: The dimensions of queries, keys and values before the width.
    repeats: The number of times to repeat each.
  """
  heads, rows = dims[at : at + 2]

  def repeated(x: jax.Array) -> jax.Array:
    tools = jnp if isinstance(x, jax.core.Tracer) else np
    rest = x.shape[at + 2 :]
    queries, shared = tools.split(x, [rows - 2], at + 1)
    many = (*x.shape[:at], heads * repeats, (rows - 2) // repeats, *rest)
    shared = tools.repeat(shared, repeats, at)
    return tools.concatenate([queries.reshape(many), shared], at + 1)

  qkv, bias = layer.qkv, layer.qkv_bias
  if isinstance(qkv, quant.QuantizedArray):
    codes = repeated(qkv.values.reshape(*dims, -1))
    joined = codes.reshape(*codes.shape[:at], -1, codes.shape[-1])
    qkv = dataclasses.replace(qkv, values=joined, scale=repeated(qkv.scale))
  else:
    qkv = repeated(qkv)
  if bias is not None:
    bias = repeated(bias)
  return dataclasses.replace(layer, qkv=qkv, qkv_bias=bias)


def _fill(x: jax.Array, dim: int, missing: int, value: float = 0) -> jax.Array:
  widths = [(0, missing if i == dim else 0) for i in range(x.ndim)]
  # The weights are on the host. jnp would compile a program for each shape.
  padder = jnp if isinstance(x, jax.core.Tracer) else np
  return padder.pad(x, widths, constant_values=value)


def padded(
  mesh: jax.sharding.Mesh, model: config_lib.ModelConfig
) -> config_lib.ModelConfig:
  """Returns the sizes of a model after `pad`, except its vocabulary size."""
  repeats = kv_repeats(mesh, model)
  if repeats > 1:
    return dataclasses.replace(model, num_kv_heads=model.kv_heads * repeats)
  heads = model.kv_heads + -model.kv_heads % _parts(mesh, 'kv_heads')
  if heads == model.kv_heads:
    return model
  return dataclasses.replace(
    model, num_heads=heads * model.group, num_kv_heads=heads
  )


def slot_parts(mesh: jax.sharding.Mesh | None) -> int:
  """Returns the number of parts of the slots; 1 without a mesh."""
  return 1 if mesh is None else _parts(mesh, 'slots')


def padded_vocab(mesh: jax.sharding.Mesh, size: int) -> int:
  """Returns the size of a vocabulary after `pad`."""
  parts = _parts(mesh, 'vocab')
  return size if parts == 1 else size + -size % (parts * logical.TILE)


def shardings(mesh: jax.sharding.Mesh, tree: Tree) -> Tree:
  """Returns the NamedSharding of every array in a tree of weights and state.

  Args:
    mesh: The mesh from `make_mesh`.
    tree: Weights, cache blocks, Slots, Prompts, or containers of these. All
      other arrays are whole on every device.
  """

  def put(node: Any) -> Any:
    specs = _SPECS.get(type(node), _whole)(node)
    return jax.tree.map(lambda s: jax.sharding.NamedSharding(mesh, s), specs)

  return jax.tree.map(put, tree, is_leaf=lambda n: type(n) in _SPECS)


def shard(mesh: jax.sharding.Mesh, tree: Tree) -> Tree:
  """Returns the arrays split over the mesh.

  If several processes share the mesh, each sends parts to its own devices,
  without communication. All processes must have the same arrays.
  """
  whole = shardings(mesh, tree)
  if not mesh.is_multi_process:
    return jax.device_put(tree, whole)

  def put(x: jax.Array | np.ndarray, to: jax.sharding.NamedSharding):
    if getattr(x, 'sharding', None) == to:
      return x
    host = np.asarray(x)
    return jax.make_array_from_callback(x.shape, to, host.__getitem__)

  return jax.tree.map(put, tree, whole)


def structs(mesh: jax.sharding.Mesh, tree: Tree) -> Tree:
  """Returns the shapes of a tree's arrays, with their shardings."""
  return jax.tree.map(
    lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
    tree,
    shardings(mesh, tree),
  )


def _parts(mesh: jax.sharding.Mesh, name: str) -> int:
  """Returns the number of parts of dimensions with this logical name."""
  return math.prod(mesh.shape[axis] for axis in logical.axes(name))


def _weights_specs(weights: weights_lib.Weights) -> weights_lib.Weights:
  table = variables.BY_FIELD

  def spec(path: tuple[Any, ...], leaf: jax.Array):
    names = [key.name for key in path if hasattr(key, 'name')]
    row = table.get('.'.join(names))
    if row is not None:
      axes = row.kept_axes
    else:  # The values of a quantized matrix have two dimensions.
      *field, part = names
      row = table['.'.join(field)]
      axes = row.outputs
      if part == 'values':  # Only the first of each are ever split.
        axes = (row.outputs[0], row.contracted[0])
    if row.per_layer and weights.stacked:
      axes = ('layers', *axes)
    return logical.spec(*axes)

  return jax.tree_util.tree_map_with_path(spec, weights)


def _block_specs(block: cache.Block) -> cache.Block:
  stacked = layers_lib.is_stacked(block.keys)
  spec = logical.spec('layers', *_BLOCK) if stacked else logical.spec(*_BLOCK)
  return jax.tree.map(lambda _: spec, block)


def _slots_specs(slots: state.Slots) -> state.Slots:
  return jax.tree.map(lambda _: logical.spec('slots'), slots)


def _whole(tree: Tree) -> Tree:
  return jax.tree.map(lambda _: logical.spec(), tree)


_SPECS: Mapping[type, Callable[[Any], Any]] = {
  weights_lib.Weights: _weights_specs,
  cache.Block: _block_specs,
  state.Slots: _slots_specs,
  state.Prompts: _whole,
}
