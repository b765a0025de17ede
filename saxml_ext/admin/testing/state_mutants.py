"""Damages the state files of a cell in many ways."""

from collections.abc import Callable
import dataclasses
import os
import pathlib
import random
import shutil

from saxml_ext.admin.leadership import shared_dir
from saxml_ext.admin.leadership import state_files
from saxml_ext.protobuf import admin_pb2

CELL = '/sax/test'
_NAMES = (state_files.STATE, state_files.PREVIOUS, state_files.SUMS)


def _flip(data: bytearray, rng: random.Random) -> bytearray:
  for _ in range(rng.choice((1, 1, 2, 20))):
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
  return data


def _truncate(data: bytearray, rng: random.Random) -> bytearray:
  return data[: rng.randrange(1, len(data))]


def _empty(data: bytearray, unused_rng: random.Random) -> bytearray:
  return data[:0]


def _zero(data: bytearray, rng: random.Random) -> bytearray:
  start = rng.choice((0, rng.randrange(len(data))))
  return data[:start] + bytes(len(data) - start)


def _noise(data: bytearray, rng: random.Random) -> bytearray:
  return bytearray(rng.randbytes(len(data)))


def _newer(data: bytearray, rng: random.Random) -> bytearray:
  # The result has a field that no version knows, or a header with another
  # number.
  if data.startswith(b'sax state sums'):
    return data.replace(b'sums 1', b'sums %d' % rng.randrange(2, 99))
  return data + b'\xfa\x07\x05newer'


_WAYS: tuple[Callable[[bytearray, random.Random], bytearray], ...] = (
  _flip,
  _truncate,
  _empty,
  _zero,
  _noise,
  _newer,
)


@dataclasses.dataclass
class Result:
  """The results of one way to damage a file.

  Attributes:
    mutants: The number of damaged files.
    good: The number of them after which all published models were recovered.
    named: The number of them that were set aside and named in the log.
  """

  mutants: int = 0
  good: int = 0
  named: int = 0


def models(count: int) -> list[admin_pb2.Model]:
  """Returns models as an admin server stores them."""
  return [
    admin_pb2.Model(
      model_id=f'{CELL}/m{i}',
      model_path='p.A',
      checkpoint_path=f'/ckpt/{i}',
      requested_num_replicas=i,
      overrides={'A': str(i)},
      uuid=bytes([i]) * 16,
    )
    for i in range(count)
  ]


def run(
  directory: pathlib.Path, count: int, logged: Callable[[], str], seed: int = 0
) -> dict[str, Result]:
  """Damages one file, starts a leader and checks the state, many times.

  Args:
    directory: An empty directory for the files.
    count: The number of mutants.
    logged: A function that returns the log since its last call.
    seed: The seed for the choice of damages.

  Returns:
    The results by "file way".
  """
  rng = random.Random(seed)
  state = admin_pb2.State(models=models(5))
  intact = directory / 'intact'
  _start(intact, 1, fresh=state)
  results: dict[str, Result] = {}
  for number in range(count):
    name = _NAMES[number % len(_NAMES)]
    way = _WAYS[number // len(_NAMES) % len(_WAYS)]
    result = results.setdefault(f'{name} {way.__name__[1:]}', Result())
    trial = directory / 'trial'
    shutil.rmtree(trial, ignore_errors=True)
    shutil.copytree(intact, trial)
    before = (trial / name).read_bytes()
    data = bytes(way(bytearray(before), rng))
    if data == before:
      continue  # One bit was flipped twice.
    (trial / name).write_bytes(data)
    logged()
    restored = _start(trial, 2)
    result.mutants += 1
    result.good += list(restored.models) == list(state.models)
    aside = trial / f'{name}.bad-1'
    result.named += (
      aside.exists()
      and aside.read_bytes() == data
      and f'{name} ({len(data)} bytes) cannot be used' in logged()
    )
  return results


def _start(
  path: pathlib.Path, epoch: int, fresh: admin_pb2.State | None = None
) -> admin_pb2.State:
  """Returns the state that a new leader finds; writes `fresh` if given."""
  directory = shared_dir.open_dir(os.fspath(path))
  if not directory.claim(epoch, 'test'):
    raise AssertionError(f'epoch {epoch} was claimed before')
  files = state_files.StateFiles(directory, CELL, epoch)
  state = files.take_over()
  if fresh:
    files.save(fresh)
  directory.resign(epoch)
  directory.close()
  return state
