"""Finds the source code of each operation of a program in XLA's dumps.

XLA writes each compiled program as text (--xla_dump_hlo_as_text). A dump has
tables of files, functions, locations and stack frames. The operations follow,
each with the stack frame that created it.
"""

from collections.abc import Sequence
import dataclasses
import functools
import glob
import os
import re

_ROW = re.compile(r'(\d+) (?:"(.*)"|\{(.*)\})$')
_OPERATION = re.compile(
  r'\s*(?:ROOT )?%?([\w.\-]+) = \(?([a-z0-9]+\[[\d,]*\])?'
)
_METADATA = re.compile(r'op_name="([^"]*)"(?: stack_frame_id=(\d+))?')
_TABLES = ('FileNames', 'FunctionNames', 'FileLocations', 'StackFrames')


@dataclasses.dataclass(frozen=True)
class Frame:
  """A location in the source: base name of the file, function and code."""

  file: str
  function: str
  code: str


@dataclasses.dataclass(frozen=True)
class Operation:
  """An operation of a program.

  Attributes:
    shape: The shape of the result, such as "f32[8,4]"; "" if there are several
      results.
    scopes: The name in JAX, such as "jit(decode)/while/body/add".
    frames: The call stack that created it, outermost first.
  """

  shape: str
  scopes: str
  frames: tuple[Frame, ...]


def read(directory: str) -> dict[tuple[str, str], Operation]:
  """Returns the operations of all dumped programs, by (program, operation).

  Programs with the same name share their entries. The same function has almost
  the same operation names for another shape.
  """
  operations: dict[tuple[str, str], Operation] = {}
  pattern = os.path.join(directory, '*.cpu_after_optimizations.txt')
  for path in sorted(glob.glob(pattern)):
    program = os.path.basename(path).split('.')[1]
    with open(path, encoding='utf-8') as file:
      lines = file.read().splitlines()
    for name, operation in _operations(lines).items():
      operations.setdefault((program, name), operation)
  return operations


def _operations(lines: Sequence[str]) -> dict[str, Operation]:
  tables: dict[str, dict[int, str]] = {name: {} for name in _TABLES}
  current, operations, frames = None, {}, {}
  for line in lines:
    if line in _TABLES:
      current = tables[line]
      continue
    row = _ROW.match(line)
    if current is not None and row:
      current[int(row[1])] = row[2] if row[2] is not None else row[3]
      continue
    metadata = _METADATA.search(line)
    operation = _OPERATION.match(line)
    if metadata and operation:
      number = int(metadata[2] or 0)
      if number not in frames:
        frames[number] = _stack(tables, number)
      operations[operation[1]] = Operation(
        operation[2] or '', metadata[1], frames[number]
      )
  return operations


def _stack(tables: dict[str, dict[int, str]], number: int) -> tuple[Frame, ...]:
  stack = []
  while number in tables['StackFrames']:
    frame = _fields(tables['StackFrames'][number])
    location = _fields(tables['FileLocations'][frame['file_location_id']])
    path = tables['FileNames'].get(location.get('file_name_id', 0), '')
    function = tables['FunctionNames'].get(
      location.get('function_name_id', 0), ''
    )
    code = _code(path, location.get('line', 0), location.get('end_line', 0))
    stack.append(Frame(os.path.basename(path), function, code))
    # The field is one more than the number of the parent. Numbers count from 1,
    # and 0 is no frame.
    number = frame.get('parent_frame_id', 1) - 1
  return tuple(reversed(stack))


def _fields(text: str) -> dict[str, int]:
  return {k: int(v) for k, v in re.findall(r'(\w+)=(\d+)', text)}


@functools.cache
def _code(path: str, first: int, last: int) -> str:
  if not os.path.isfile(path):
    return ''
  with open(path, encoding='utf-8') as file:
    lines = file.read().splitlines()[first - 1 : max(first, last)]
  return ' '.join(line.strip() for line in lines)
