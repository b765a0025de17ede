import queue
import threading

from absl.testing import absltest
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
    found = dict(replies.get(timeout=60) for _ in range(count))
    made.close()
    return found, sizes

  def test_answers_in_batches(self):
    found, sizes = self._run(
      lambda indices: [system_lib.Answer(np.array([i, i])) for i in indices],
      9,
      4,
    )
    self.assertEqual(found, {i: [i, i] for i in range(9)})
    self.assertLessEqual(max(sizes), 4)
    # The first batch may have begun before all samples were waiting.
    self.assertIn(4, sizes)

  def test_an_error_fails_the_batch(self):
    def fail(indices):
      raise ValueError('no memory')

    found, _ = self._run(fail, 3, 4)
    self.assertEqual(found, {i: 'no memory' for i in range(3)})

  def test_a_missing_answer_fails_the_batch(self):
    found, _ = self._run(lambda indices: [], 1, 4)
    self.assertEqual(found, {0: '0 answers to 1 samples'})

  def test_close_ends_an_idle_thread(self):
    made = system_lib.BatchedSystem(lambda indices: [], 1)
    made.close()
    made.close()


if __name__ == '__main__':
  absltest.main()
