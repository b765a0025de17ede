import queue
import threading

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from harness.loadgen import system as system_lib


class _Reply:
  def __init__(self, index, replies):
    self._index = index
    self._replies = replies

  def done(self, answer):
    self._replies.put((self._index, answer.data.tolist()))

  def failed(self, error):
    self._replies.put((self._index, str(error)))


class BatchedSystemTest(absltest.TestCase):
  def _run(self, answer_batch, count: int, batch_size: int):
    """Answers `count` samples that wait together; returns the reply to each."""
    go = threading.Event()
    sizes = []

    def answer(indices):
      go.wait(60)
      sizes.append(len(indices))
      return answer_batch(indices)

    replies: queue.Queue = queue.Queue()
    made = system_lib.BatchedSystem(answer, batch_size)
    for index in range(count):
      made.answer(index, _Reply(index, replies))
    go.set()
    answers = dict(replies.get(timeout=60) for _ in range(count))
    made.close()
    return answers, sizes

  def test_answers_in_batches(self):
    answers, sizes = self._run(
      lambda indices: [system_lib.Answer(np.array([i, i])) for i in indices],
      9,
      4,
    )
    self.assertEqual(answers, {i: [i, i] for i in range(9)})
    self.assertLessEqual(max(sizes), 4)
    # The first batch may have begun before all samples were waiting.
    self.assertIn(4, sizes)

  def test_an_error_fails_the_batch(self):
    def fail(indices):
      raise ValueError('no memory')

    answers, _ = self._run(fail, 3, 4)
    self.assertEqual(answers, {i: 'no memory' for i in range(3)})

  def test_a_missing_answer_fails_the_batch(self):
    answers, _ = self._run(lambda indices: [], 1, 4)
    self.assertEqual(
      answers, {0: 'the system returned 0 answers for 1 samples'}
    )

  def test_close_ends_an_idle_thread(self):
    made = system_lib.BatchedSystem(lambda indices: [], 1)
    made.close()
    made.close()


class _System:
  """A system that answers a burst when all of its samples wait."""

  def __init__(self, bursts):
    self._bursts = list(bursts)
    self.indices = []
    self._waiting = []

  def answer(self, index, reply):
    self.indices.append(index)
    self._waiting.append(reply)
    if len(self._waiting) == self._bursts[0]:
      waiting, self._waiting = self._waiting, []
      del self._bursts[0]
      for pending in waiting:
        threading.Thread(
          target=pending.done, args=(system_lib.Answer(np.zeros(1)),)
        ).start()


class _Broken:
  def answer(self, index, reply):
    reply.failed(ValueError('no model'))


class _Silent:
  def answer(self, index, reply):
    pass


class _Slow:
  def answer(self, index, reply):
    answer = system_lib.Answer(np.zeros(1))
    threading.Timer(0.5, reply.done, (answer,)).start()


class WarmUpTest(parameterized.TestCase):
  @parameterized.parameters(
    ('', []), ('3', [3]), ('1-4,36', [1, 2, 3, 4, 36]), ('2,2', [2, 2])
  )
  def test_parse(self, text, expected):
    self.assertEqual(system_lib.parse_bursts(text), expected)

  @parameterized.parameters('0', '3-1', 'x', '1-', '-2')
  def test_parse_refuses(self, text):
    with self.assertRaisesRegex(ValueError, f'--warm_up={text}: .* no size of'):
      system_lib.parse_bursts(text)

  def test_bursts_follow_each_other(self):
    cell = _System([1, 2, 3])
    answers = []
    system_lib.warm_up(
      cell, 4, [1, 2, 3], 0.0, 60.0, on_answer=lambda: answers.append(1)
    )
    self.assertEqual(cell.indices, [0, 1, 2, 3, 0, 1])
    self.assertLen(answers, 6)

  def test_failure_and_silence_are_reported(self):
    with self.assertRaisesRegex(system_lib.WarmUpError, 'failed: no model'):
      system_lib.warm_up(_Broken(), 1, [1], 0.0, 60.0)
    with self.assertRaisesRegex(
      system_lib.WarmUpError, 'no answer to a burst of 2 samples for 0 s'
    ):
      system_lib.warm_up(_Silent(), 1, [2], 0.0, 0.1)

  def test_the_first_answer_alone_may_take_longer(self):
    system_lib.warm_up(_Slow(), 2, [1], 0.0, 0.1, 60.0)
    with self.assertRaisesRegex(
      system_lib.WarmUpError, 'a burst of 1 .* for 0 s'
    ):
      system_lib.warm_up(_Slow(), 2, [1, 1], 0.0, 0.1, 60.0)


if __name__ == '__main__':
  absltest.main()
