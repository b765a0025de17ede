"""Runs LoadGen once against predefined answers.

An answer of GPT-J or Llama is a few token ids. An answer of BERT is the logits of its
first tokens. Such answers produce real logs faster than any model could.
"""

from collections.abc import Sequence
import time

from absl import flags
import msgspec
import numpy as np

from harness.benchmarks import all as benchmarks
from harness.loadgen import run as run_lib
from harness.loadgen import runner
from harness.loadgen import system
from saxml_ext.common import program

flags.DEFINE_integer('samples', 20, 'The number of samples in the set.', 1)
flags.DEFINE_integer('width', 4, 'The number of tokens per answer.', 1)
flags.DEFINE_bool('logits', False, 'Answer with logits, like BERT.')
flags.DEFINE_float('answer_secs', 0.0, 'The time per batch.')
flags.DEFINE_integer('shift', 0, 'Shifts the answers of performance runs.')


class Canned(  # type: ignore[call-arg]
  msgspec.Struct, frozen=True, forbid_unknown_fields=True
):
  """The settings of the answers, by flag name."""

  samples: int = 20
  width: int = 4
  logits: bool = False
  answer_secs: float = 0.0
  shift: int = 0


class _Streaming(system.BatchedSystem):
  """A system that reports the first token of each answer."""

  def answer(self, index: int, reply: system.Reply) -> None:
    super().answer(index, _WithFirstToken(reply))


class _WithFirstToken:
  """A reply that reports the first token of its answer before the rest."""

  def __init__(self, reply: system.Reply):
    self._reply = reply
    self.failed = reply.failed

  def done(self, answer: system.Answer) -> None:
    self._reply.first_token(int(answer.data[0]))
    self._reply.done(answer)


def main(argv: Sequence[str]) -> None:
  run = runner.requested_run(argv, Canned)
  canned = run.system
  benchmark = benchmarks.get(run.benchmark)
  shift = canned.shift if run.mode == run_lib.PERFORMANCE else 0

  def answer(index: int) -> system.Answer:
    value, width = index + shift, canned.width
    if canned.logits:
      return system.Answer(np.full((width, 2), value, np.float32))
    ids = np.arange(value, value + width, dtype=benchmark.dtype)
    return system.Answer(ids, width)

  def answer_batch(indices: Sequence[int]) -> list[system.Answer]:
    time.sleep(canned.answer_secs)
    return [answer(index) for index in indices]

  runner.main(
    lambda: runner.Subject(
      (_Streaming if benchmark.uses_tokens else system.BatchedSystem)(
        answer_batch, 4096
      ),
      [1] * canned.samples,
    ),
    run,
  )


if __name__ == '__main__':
  run_lib.keep(run_lib.Run)
  program.run(main, takes_words=True)
