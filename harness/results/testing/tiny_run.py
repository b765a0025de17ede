"""Runs LoadGen once against a minimal system, to produce real logs."""

from collections.abc import Sequence
import time

from absl import flags
import numpy as np

from harness.benchmarks import all as benchmarks
from harness.loadgen import run as run_lib
from harness.loadgen import runner
from harness.loadgen import system
from saxml_ext.common import program

_SAMPLES = flags.DEFINE_integer('samples', 8, 'Samples of the set.', 1)
_BATCH_SECS = flags.DEFINE_float('batch_secs', 0.0, 'Time of a batch.', 0)
_TOKENS = flags.DEFINE_integer('tokens', 2, 'Tokens of an answer.', 1)
_BATCH = 16


# The time of the tokens after the first one of an answer.
_REST_SECS = 2e-4


class _FirstTokens:
  """Reports each first token shortly before its answer, on the same thread."""

  def __init__(self, inner: system.System):
    self._inner = inner
    self.close = inner.close

  def answer(self, index: int, reply: system.Reply) -> None:
    self._inner.answer(index, _Reply(index, reply))


class _Reply:
  def __init__(self, index: int, reply: system.Reply):
    self._index = index
    self._reply = reply
    self.failed = reply.failed

  def done(self, answer: system.Answer) -> None:
    self._reply.first_token(self._index)
    time.sleep(_REST_SECS)
    self._reply.done(answer)


def _answer(indices: Sequence[int]) -> list[system.Answer]:
  time.sleep(_BATCH_SECS.value)
  tokens = _TOKENS.value
  dtype = benchmarks.get(flags.FLAGS.benchmark).dtype
  return [
    system.Answer(np.full(tokens, index, dtype), tokens) for index in indices
  ]


def _subject() -> runner.Subject:
  return runner.Subject(
    _FirstTokens(system.BatchedSystem(_answer, _BATCH)),
    [1] * _SAMPLES.value,
  )


def main(argv: Sequence[str]) -> None:
  del argv
  runner.main(_subject)


if __name__ == '__main__':
  run_lib.keep(run_lib.Run)
  program.run(main)
