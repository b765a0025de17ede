"""Counts the VLIW instructions of a Pallas kernel in its compiled code.

XLA does not estimate the cycles of a kernel. libtpu writes the final code, one
bundle per line, if LIBTPU_INIT_ARGS contains "--xla_jf_dump_to=DIR
--xla_jf_dump_llo_text=true". A bundle takes one cycle unless it waits.

The code of a loop is counted separately. Within a loop, the parts that a branch
skips are counted separately, largest first. The code does not show which parts
an iteration runs. Callers must know the kernel for that.

Dumps contain the code of all operations after every compiler pass. For a decode
program this is about a gigabyte, so compile each kernel alone.
"""

from collections.abc import Mapping
import dataclasses
import itertools
import pathlib
import re
from typing import NamedTuple

_FILE = re.compile(r'^\d+-(.+?)(?:\.\d+)?-\d+-final_bundles\.txt$')
_LINE = re.compile(
  r'^\s*(0x[0-9a-f]+|0)\s+(?:LH|LB|LE|PB|PF|CT)?\s*:\s*(>*)\s*(.*)$'
)
_BRANCH = re.compile(r'sbr\.rel .*?target = \$region(\d+)')
# A branch takes effect after this many further bundles.
_DELAY = 4


@dataclasses.dataclass(frozen=True)
class Loop:
  """A top-level loop. Inner loops are part of it.

  Attributes:
    common: The bundles that every iteration runs.
    skippable: The bundles of each part that a branch may skip, largest first.
      Nested parts are not listed.
  """

  common: int
  skippable: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Kernel:
  """The code of a kernel.

  Attributes:
    loops: The loops, in order.
    depths: The number of bundles at each loop depth, starting outside of loops.
      Skippable bundles are included.
  """

  loops: tuple[Loop, ...]
  depths: tuple[int, ...]


class _Bundle(NamedTuple):
  """A line of code: its address, its size in bundles, loop depth and text."""

  address: int
  size: int
  depth: int
  text: str


def read(directory: pathlib.Path) -> Mapping[str, Kernel]:
  """Returns the kernels by name, without the number at the end of the name.

  If a kernel was dumped several times, the last dump counts.

  Raises:
    ValueError: The directory has no dumped code.
  """
  kernels = {
    name[1]: parse(path.read_text('utf-8'))
    for path in sorted(directory.glob('*-final_bundles.txt'))
    if (name := _FILE.match(path.name))
  }
  if not kernels:
    raise ValueError(
      f'{directory} has no files *-final_bundles.txt. Compile with'
      f' LIBTPU_INIT_ARGS="--xla_jf_dump_to={directory}'
      ' --xla_jf_dump_llo_text=true".'
    )
  return kernels


def parse(text: str) -> Kernel:
  """Parses the final bundles of one kernel."""
  bundles = _bundles(text)
  parts = itertools.groupby(bundles, lambda bundle: bundle.depth > 0)
  loops = tuple(_loop(list(body)) for inside, body in parts if inside)
  depths = [0] * (1 + max((bundle.depth for bundle in bundles), default=0))
  for bundle in bundles:
    depths[bundle.depth] += bundle.size
  return Kernel(loops, tuple(depths))


def count_decode_attention(code: Kernel) -> tuple[int, int, int]:
  """Returns the bundles outside of the loop, and of each kind of block.

  The largest skippable part of the loop handles a prompt's block. The next one
  handles a suffix's block.
  """
  loop = max(code.loops, key=lambda x: x.common + sum(x.skippable))
  if len(loop.skippable) < 2:
    raise ValueError(
      f"decode attention's loop has the skippable parts {loop.skippable}, but"
      ' must have two: for prompts and suffixes.'
    )
  prompt, suffix = (loop.common + part for part in loop.skippable[:2])
  return code.depths[0], prompt, suffix


def _bundles(text: str) -> list[_Bundle]:
  matches = [m for line in text.splitlines() if (m := _LINE.match(line))]
  addresses = [int(m[1], 16) for m in matches]
  ends = [*addresses[1:], *(a + 1 for a in addresses[-1:])]
  bundles: list[_Bundle] = []
  for m, address, end in zip(matches, addresses, ends):
    # Bundles after a branch may be empty. These lack the depth mark.
    empty = bool(bundles) and re.match(r'\{\s*\}', m[3])
    depth = bundles[-1].depth if empty else len(m[2])
    bundles.append(_Bundle(address, end - address, depth, m[3]))
  return bundles


def _loop(body: list[_Bundle]) -> Loop:
  """Separates the bundles of a loop that a forward branch can skip."""
  ends: dict[str, int] = {}
  for bundle in body:
    for number in re.findall(r'region (\d+)', bundle.text):
      ends.setdefault(number, bundle.address)
  total = sum(bundle.size for bundle in body)
  skippable = []
  skipped_to = 0
  for bundle in body:
    branch = _BRANCH.search(bundle.text)
    begin = bundle.address + 1 + _DELAY
    if branch is None or begin < skipped_to:
      continue
    end = ends.get(branch[1], 0)
    if end > begin:
      skippable.append(end - begin)
      skipped_to = end
  return Loop(total - sum(skippable), tuple(sorted(skippable, reverse=True)))
