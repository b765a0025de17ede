"""One LoadGen run against answers that are known beforehand.

GPT-J's are a few token ids, BERT's the logits of its first tokens: enough for
real logs, which no model could make as fast.
"""

from collections.abc import Sequence
import time

from absl import flags
import numpy as np

from harness.loadgen import runner
from harness.loadgen import system
from harness.systems import batched
from saxml_ext.common import program

_SAMPLES = flags.DEFINE_integer('samples', 20, 'Samples of the set.', 1)
_WIDTH = flags.DEFINE_integer('width', 4, 'Tokens of an answer.', 1)
_LOGITS = flags.DEFINE_bool('logits', False, 'Answer logits, as a BERT does.')
_ANSWER_SECS = flags.DEFINE_float('answer_secs', 0.0, 'Time of a batch.')
_SHIFT = flags.DEFINE_integer(
  'shift', 0, 'Makes the answers of performance runs others.'
)


def _answer(index: int) -> system.Answer:
  value = index
  if flags.FLAGS.mode == 'performance':
    value += _SHIFT.value
  if _LOGITS.value:
    return system.Answer(np.full((_WIDTH.value, 2), value, np.float32))
  tokens = np.arange(value, value + _WIDTH.value, dtype=np.int64)
  return system.Answer(tokens, _WIDTH.value)


def _answer_batch(indices: Sequence[int]) -> list[system.Answer]:
  if _ANSWER_SECS.value:
    time.sleep(_ANSWER_SECS.value)
  return [_answer(index) for index in indices]


def _subject() -> runner.Subject:
  return runner.Subject(
    batched.BatchedSystem(_answer_batch, 4096), [1] * _SAMPLES.value
  )


def main(argv: Sequence[str]) -> None:
  del argv
  runner.main(_subject)


if __name__ == '__main__':
  runner.mark_flags_as_required()
  program.run(main)
