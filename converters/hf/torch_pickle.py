"""Interprets the pickle inside a PyTorch file without running it.

A pickle is a program that may call any function. This module only analyzes it.
Its own stack machine supports the two dozen opcodes that torch.save emits for a
dict of tensors. A call of torch's rebuild functions becomes a TensorRef. No
name in the file is ever imported or called. Any other opcode or name is
refused.
"""

from collections.abc import Sequence
import dataclasses
import math
import pickletools
from typing import Any

from saxml_ext.pax import errors

# The pickle of GPT-J 6B has 60 KB. These limits bound the time and the memory
# that a malicious pickle can use.
MAX_PICKLE_BYTES = 1 << 20

_REBUILD = ('torch._utils', '_rebuild_tensor_v2')
_PARAMETER = ('torch._utils', '_rebuild_parameter')
_ORDERED_DICT = ('collections', 'OrderedDict')
_CALLS = (_REBUILD, _PARAMETER, _ORDERED_DICT)
STORAGES = {
  'FloatStorage': 'float32',
  'DoubleStorage': 'float64',
  'HalfStorage': 'float16',
  'BFloat16Storage': 'bfloat16',
  'LongStorage': 'int64',
  'IntStorage': 'int32',
  'ShortStorage': 'int16',
  'CharStorage': 'int8',
  'ByteStorage': 'uint8',
  'BoolStorage': 'bool',
}
# The opcodes that push their argument.
_CONSTANTS = frozenset(
  'BININT BININT1 BININT2 LONG1 NONE NEWTRUE NEWFALSE BINUNICODE'
  ' SHORT_BINUNICODE BINFLOAT'.split()
)
# The opcodes that push a new empty object, and those that push a tuple of the
# topmost objects.
_EMPTY = {'EMPTY_DICT': dict, 'EMPTY_LIST': list, 'EMPTY_TUPLE': tuple}
_TUPLES = {'TUPLE1': 1, 'TUPLE2': 2, 'TUPLE3': 3}


@dataclasses.dataclass(frozen=True)
class StorageRef:
  """A storage of `count` values of `dtype` in the zip member `data/<key>`."""

  dtype: str
  key: str
  count: int


@dataclasses.dataclass(frozen=True)
class TensorRef:
  """A view of a storage; the offset and strides count elements, not bytes."""

  storage: StorageRef
  offset: int
  shape: tuple[int, ...]
  strides: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class _Name:
  """A module and a name in it, as the file states them; never imported."""

  module: str
  name: str


_MARK = object()


def read_tensors(data: bytes, where: str) -> dict[str, TensorRef]:
  """Returns the tensors of a pickled state dict by name.

  Args:
    data: The pickle, which is the member `data.pkl` of a PyTorch file.
    where: The path of the file, for messages.

  Raises:
    errors.CheckpointError: The pickle contains or does anything else.
  """
  if len(data) > MAX_PICKLE_BYTES:
    raise errors.CheckpointError(
      f'{where}: its pickle has {len(data)} bytes. The limit is'
      f' {MAX_PICKLE_BYTES}. A state dict with only weights is much smaller.'
    )
  try:
    result = _Machine().run(data)
  except _Refused as e:
    raise errors.CheckpointError(
      f'{where} is refused: {e}. No part of it was run. Save only the'
      ' state dict of the model, or use safetensors.'
    ) from e
  except (
    ValueError,
    IndexError,
    KeyError,
    TypeError,
    AttributeError,
    RecursionError,
  ) as e:
    raise errors.CheckpointError(
      f'{where}: its pickle is damaged ({e!r}). Download it again.'
    ) from e
  if not isinstance(result, dict):
    raise errors.CheckpointError(
      f'{where} contains a {type(result).__name__}. Expected a dict of tensors.'
    )
  tensors = {}
  for name, value in result.items():
    if not isinstance(name, str) or not isinstance(value, TensorRef):
      raise errors.CheckpointError(
        f'{where}: entry {str(name)[:100]!r} is a {type(value).__name__}.'
        ' Expected only tensors by name. Save only the state dict.'
      )
    tensors[name] = value
  return tensors


class _Refused(Exception):
  """Raised for a pickle that does something that no state dict needs."""


class _Machine:
  """A stack machine that runs one pickle."""

  def __init__(self):
    self._stack: list[Any] = []
    self._memo: dict[int, Any] = {}

  def run(self, data: bytes) -> Any:
    for opcode, argument, _ in pickletools.genops(data):
      if opcode.name == 'STOP':
        return self._stack.pop()
      if opcode.name in _CONSTANTS:
        self._stack.append(argument)
      elif opcode.name in _EMPTY:
        self._stack.append(_EMPTY[opcode.name]())
      elif opcode.name in _TUPLES:
        self._stack.append(self._pop(_TUPLES[opcode.name]))
      elif handler := getattr(self, f'_op_{opcode.name.lower()}', None):
        handler(argument)
      else:
        raise _Refused(f'its pickle uses {opcode.name}')
    raise ValueError('the pickle has no STOP')

  def _to_mark(self) -> list[Any]:
    items = []
    while (item := self._stack.pop()) is not _MARK:
      items.append(item)
    return items[::-1]

  def _pop(self, count: int) -> tuple[Any, ...]:
    return tuple(self._stack.pop() for _ in range(count))[::-1]

  def _op_proto(self, version):
    if version != 2:
      raise _Refused(f'its pickle has protocol {version}, but torch writes 2')

  def _op_mark(self, _):
    self._stack.append(_MARK)

  def _op_tuple(self, _):
    self._stack.append(tuple(self._to_mark()))

  def _op_append(self, _):
    self._extend(self._pop(1))

  def _op_appends(self, _):
    self._extend(self._to_mark())

  def _extend(self, items: Sequence[Any]) -> None:
    _expect(self._stack[-1], list).extend(items)

  def _op_setitem(self, _):
    self._set(self._pop(2))

  def _op_setitems(self, _):
    self._set(self._to_mark())

  def _set(self, items: Sequence[Any]) -> None:
    target = _expect(self._stack[-1], dict)
    for key, value in zip(items[::2], items[1::2], strict=True):
      target[_expect(key, str)] = value

  def _op_binput(self, index):
    self._memo[index] = self._stack[-1]

  _op_long_binput = _op_binput

  def _op_binget(self, index):
    self._stack.append(self._memo[index])

  _op_long_binget = _op_binget

  def _op_global(self, argument):
    module, name = argument.split(' ', 1)
    if (module, name) not in _CALLS and not (
      module == 'torch' and name in STORAGES
    ):
      raise _Refused(f'its pickle refers to {module}.{name}'[:300])
    self._stack.append(_Name(module, name))

  def _op_build(self, _):
    # torch attaches versions to the dict as an attribute. They are not needed
    # here.
    _expect(self._stack[-2], dict)
    self._stack.pop()

  def _op_binpersid(self, _):
    kind, storage, key, _, count = self._stack.pop()
    if kind != 'storage' or _expect(storage, _Name).name not in STORAGES:
      raise _Refused(f'its pickle refers to {str(kind)[:50]!r}')
    self._stack.append(
      StorageRef(STORAGES[storage.name], _expect(key, str), _size(count))
    )

  def _op_reduce(self, _):
    target, arguments = self._pop(2)
    call = (_expect(target, _Name).module, target.name)
    if call == _ORDERED_DICT and arguments == ():
      self._stack.append({})
    elif call == _REBUILD:
      self._stack.append(_rebuild(*arguments[:4]))
    elif call == _PARAMETER:
      self._stack.append(_expect(arguments[0], TensorRef))
    else:
      raise _Refused(
        f'its pickle calls {".".join(call)} with arguments that '
        'torch does not use'
      )


def _rebuild(storage, offset, shape, strides) -> TensorRef:
  _expect(storage, StorageRef)
  shape = tuple(_size(n) for n in _expect(shape, tuple))
  strides = tuple(_size(n) for n in _expect(strides, tuple))
  if len(shape) != len(strides) or len(shape) > 8:
    raise ValueError(f'shape {shape[:8]} does not fit strides {strides[:8]}')
  count = math.prod(shape)
  last = sum((n - 1) * s for n, s in zip(shape, strides))
  if count > storage.count or (count and _size(offset) + last >= storage.count):
    raise ValueError(
      f'a tensor of shape {shape} exceeds its {storage.count} numbers'
    )
  return TensorRef(storage, offset, shape, strides)


def _expect(value: Any, kind: type) -> Any:
  if not isinstance(value, kind):
    raise ValueError(
      f'expected a {kind.__name__}, found {type(value).__name__}'
    )
  return value


def _size(value: Any) -> int:
  if type(value) is not int or not 0 <= value < 1 << 48:
    raise ValueError(f'{str(value)[:50]!r} is not a valid size')
  return value
