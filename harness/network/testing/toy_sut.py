"""Runs a toy system that answers with the sample's tokens in reverse order."""

from collections.abc import Sequence
import time

from absl import flags
import numpy as np

from harness.loadgen import run as run_lib
from harness.loadgen import system
from harness.network import client
from harness.network import network_program
from harness.network import payload
from saxml_ext.common import program as program_lib

_SILENT_AFTER = flags.DEFINE_integer(
  'silent_after',
  None,
  'The number of samples after which the system stops answering.',
)
_LOAD_SECS = flags.DEFINE_float('load_secs', 0.0, 'The load time in seconds.')


class Reversing:
  """Answers at once with input_ids in reverse order."""

  def __init__(
    self, inputs: network_program.Inputs, silent_after: int | None = None
  ):
    self._inputs = inputs
    self._left = silent_after

  def answer(self, index: int, reply: system.Reply) -> None:
    if self._left is not None:
      if not self._left:
        return
      self._left -= 1
    ids = self._inputs[index]['input_ids']
    if ids[0] < 0:
      raise ValueError(f'No token has the ID {ids[0]}.')
    reply.first_token()
    reply.done(system.Answer(np.ascontiguousarray(ids[::-1]), len(ids)))

  def close(self) -> None:
    """Does nothing, because nothing runs."""


def payloads() -> list[payload.Payload]:
  """Returns the set: 40 samples with 1 to 40 tokens."""
  return [{'input_ids': np.arange(n, dtype=np.int64)} for n in range(1, 41)]


def _make(inputs: network_program.Inputs) -> Reversing:
  if _LOAD_SECS.value:
    print('loading', flush=True)
    time.sleep(_LOAD_SECS.value)
  return Reversing(inputs, _SILENT_AFTER.value)


def main(argv: Sequence[str]) -> None:
  del argv
  network_program.main(_make, payloads, 'toy')


if __name__ == '__main__':
  run_lib.keep(run_lib.Run, client.Nodes, 'network')
  program_lib.run(main)
