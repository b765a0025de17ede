"""Puts what XLA compiled for a CPU into an order of its own.

XLA compiles the kernels of a program on several threads and writes their object
files as these end, so that two compilations of one program differ by nothing
but that order. It has no meaning: the files are linked by the names of their
symbols. Sorted, equal programs are equal bytes.

The bytes are protocol buffers without a published schema: a header, preceded by
its length, then a message whose field 1 is XLA's CompilationResultProto, whose
field 8 are the object files, as of jaxlib 0.10.
"""

from collections.abc import Iterator

_RESULT = 1
_OBJECT_FILE = 8
_ELF = b'\x7fELF'

# Wire types of protocol buffers, and how many bytes a value of theirs has.
_VARINT = 0
_SIZES = {1: 8, 5: 4}
_DELIMITED = 2


def sort(executable: bytes) -> bytes:
  """The same executable with its object files in the order of their bytes.

  Raises:
    ValueError: it is not laid out as described above.
  """
  length, begin = _varint(executable, 0)
  for number, start, end in _fields(executable, begin + length):
    if number == _RESULT:
      _, after_tag = _varint(executable, start)
      _, start = _varint(executable, after_tag)
      middle = _sorted(executable[start:end])
      return executable[:start] + middle + executable[end:]
  raise ValueError('the executable holds no result of a compilation')


def _sorted(result: bytes) -> bytes:
  """A CompilationResultProto with its object files sorted."""
  before: list[bytes] = []
  files: list[bytes] = []
  after: list[bytes] = []
  for number, start, end in _fields(result, 0):
    field = result[start:end]
    if number != _OBJECT_FILE:
      (after if files else before).append(field)
    elif _ELF in field:
      files.append(field)
    else:
      raise ValueError('an object file of the executable is no ELF file')
  return b''.join([*before, *sorted(files), *after])


def _fields(message: bytes, at: int) -> Iterator[tuple[int, int, int]]:
  """Number, start and end of each field from `at` on, tags included."""
  while at < len(message):
    start = at
    tag, at = _varint(message, at)
    kind = tag & 7
    if kind == _VARINT:
      _, at = _varint(message, at)
    elif kind == _DELIMITED:
      length, at = _varint(message, at)
      at += length
    elif kind in _SIZES:
      at += _SIZES[kind]
    else:
      raise ValueError(f'byte {start} of the executable begins no field')
    if at > len(message):
      raise ValueError(
        f'the field at byte {start} of the executable is cut off'
      )
    yield tag >> 3, start, at


def _varint(message: bytes, at: int) -> tuple[int, int]:
  """A number of variable length and where it ends."""
  value = shift = 0
  while at < len(message):
    byte = message[at]
    value |= (byte & 127) << shift
    at, shift = at + 1, shift + 7
    if byte < 128:
      return value, at
  raise ValueError('the executable ends within a number')
