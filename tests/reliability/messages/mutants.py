"""Makes requests that no client would send: random, mutated, and noise."""

from collections.abc import Callable, Mapping, Sequence
import math
import random
from typing import Any, TypeAlias

from google.protobuf import descriptor
from google.protobuf import message as message_lib
from google.protobuf import message_factory

_Field: TypeAlias = descriptor.FieldDescriptor
_MOST_DEPTH = 4
_TEXTS = (
  '',
  ' ',
  '\0',
  'None',
  '/',
  '..',
  '../../etc/passwd',
  '%s%n%x',
  '1,2,3',
  '1,-2,3',
  '1,,2',
  '99999999999999999999',
  ','.join(['7'] * 3000),
  'é\u202e\ufffd\U0010ffff',
  'x' * 5000,
  '{"a": [1, null]}',
  '[' * 2000,
  '[::1]:1',
  '127.0.0.1:1',
  'lm.generate',
  'acl/all',
)
_WHOLE = (0, 1, 2, -1, 7, 127, 128, 255, 65536, 2**31 - 1)
_WHOLE_64 = (2**31, 2**53, 2**63 - 1, -(2**63))
_REAL = (0.0, -0.0, 1.0, -1.0, 1e-40, 1e30, math.inf, -math.inf, math.nan)
_INT_32 = (_Field.TYPE_INT32, _Field.TYPE_SINT32, _Field.TYPE_SFIXED32)
_INT_64 = (_Field.TYPE_INT64, _Field.TYPE_SINT64, _Field.TYPE_SFIXED64)
_UINTS = (
  _Field.TYPE_UINT32,
  _Field.TYPE_UINT64,
  _Field.TYPE_FIXED32,
  _Field.TYPE_FIXED64,
)


class Mutator:
  """A random generator of such requests."""

  def __init__(
    self,
    rng: random.Random,
    texts: Sequence[str],
    seeds: Mapping[str, Sequence[message_lib.Message]],
  ):
    """Stores the arguments.

    Args:
      rng: The source of all random choices.
      texts: The texts that are meaningful to the server: ids, paths.
      seeds: The valid requests by the full name of their type.
    """
    self._rng = rng
    self._texts = tuple(texts)
    self._seeds = seeds

  def request(self, kind: descriptor.Descriptor) -> bytes:
    """Returns the bytes of a request that is intended for a type."""
    rng = self._rng
    way = rng.random()
    if way < 0.1:
      return rng.randbytes(rng.choice((0, 1, 3, 30, 300, 3000)))
    if way < 0.4:
      message = message_factory.GetMessageClass(kind)()
      self._fill(message, 0)
    else:
      message = self._seed(kind)
      for _ in range(rng.choice((0, 1, 1, 2, 3))):
        self._change(message)
    data = message.SerializeToString()
    return self._damage(data) if rng.random() < 0.25 else data

  def _seed(self, kind: descriptor.Descriptor) -> message_lib.Message:
    message = message_factory.GetMessageClass(kind)()
    if seeds := self._seeds.get(kind.full_name):
      message.CopyFrom(self._rng.choice(list(seeds)))
    else:
      self._fill(message, 0)
    return message

  def _change(self, message: message_lib.Message) -> None:
    """Changes the value of one field, which may be in a nested message."""
    fields = list(message.DESCRIPTOR.fields)
    if not fields:
      return
    field = self._rng.choice(fields)
    within = (
      field.type == _Field.TYPE_MESSAGE
      and not field.is_repeated
      and self._rng.random() < 0.7
    )
    if within:
      self._change(getattr(message, field.name))
    else:
      message.ClearField(field.name)
      self._set(message, field, 0)

  def _fill(self, message: message_lib.Message, depth: int) -> None:
    for field in message.DESCRIPTOR.fields:
      if self._rng.random() < 0.6:
        self._set(message, field, depth)

  def _set(
    self, message: message_lib.Message, field: _Field, depth: int
  ) -> None:
    if depth > _MOST_DEPTH:
      return
    if field.is_repeated:
      for _ in range(self._rng.choice((0, 1, 1, 2, 3, 40))):
        self._add(message, field, depth)
    elif field.type == _Field.TYPE_MESSAGE:
      within = getattr(message, field.name)
      within.SetInParent()
      self._fill(within, depth + 1)
    else:
      setattr(message, field.name, self._value(field))

  def _add(
    self, message: message_lib.Message, field: _Field, depth: int
  ) -> None:
    values = getattr(message, field.name)
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
      key = self._value(kind.fields_by_name['key'])
      value = kind.fields_by_name['value']
      if value.type == _Field.TYPE_MESSAGE:
        self._fill(values[key], depth + 1)
      else:
        values[key] = self._value(value)
    elif kind is not None:
      self._fill(values.add(), depth + 1)
    else:
      values.append(self._value(field))

  def _value(self, field: _Field) -> Any:
    rng = self._rng
    if field.type == _Field.TYPE_STRING:
      return rng.choice(self._texts if rng.random() < 0.5 else _TEXTS)
    if field.type == _Field.TYPE_BYTES:
      return rng.randbytes(rng.choice((0, 1, 16, 200)))
    if field.type == _Field.TYPE_BOOL:
      return rng.random() < 0.5
    if field.type in _INT_32:
      return rng.choice((*_WHOLE, -(2**31)))
    if field.type in _INT_64:
      return rng.choice(_WHOLE + _WHOLE_64)
    if field.type in _UINTS:
      return abs(rng.choice(_WHOLE))
    if field.type == _Field.TYPE_ENUM:
      return rng.choice((0, 1, 2, 3, 99, -1, 2**31 - 1))
    return rng.choice(_REAL)

  def _damage(self, data: bytes) -> bytes:
    ways: tuple[Callable[[bytearray], bytes], ...] = (
      self._flip,
      self._cut,
      lambda d: bytes(d + d),
      lambda d: bytes(d) + self._rng.randbytes(8),
      # This field announces a huge length, far beyond the end of the message.
      lambda d: bytes(d) + b'\x0a\xff\xff\xff\xff\x07',
      # These groups have no end.
      lambda d: bytes(d) + b'\x0b' * 300,
    )
    return self._rng.choice(ways)(bytearray(data))

  def _flip(self, data: bytearray) -> bytes:
    for _ in range(self._rng.choice((1, 1, 3, 20))):
      if data:
        data[self._rng.randrange(len(data))] ^= 1 << self._rng.randrange(8)
    return bytes(data)

  def _cut(self, data: bytearray) -> bytes:
    return bytes(data[: self._rng.randrange(len(data) + 1)])
