import threading

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from harness.loadgen import system
from harness.loadgen import warm_up


class _System:
  """A system that answers a burst when all of its samples wait."""

  def __init__(self, bursts):
    self._bursts = list(bursts)
    self.asked = []
    self._waiting = []

  def answer(self, index, reply):
    self.asked.append(index)
    self._waiting.append(reply)
    if len(self._waiting) == self._bursts[0]:
      waiting, self._waiting = self._waiting, []
      del self._bursts[0]
      for each in waiting:
        threading.Thread(
          target=each.done, args=(system.Answer(np.zeros(1)),)
        ).start()


class _Broken:
  def answer(self, index, reply):
    reply.failed(ValueError('no model'))


class _Silent:
  def answer(self, index, reply):
    pass


class _Slow:
  def answer(self, index, reply):
    answer = system.Answer(np.zeros(1))
    threading.Timer(0.5, reply.done, (answer,)).start()


class WarmUpTest(parameterized.TestCase):
  @parameterized.parameters(
    ('', []), ('3', [3]), ('1-4,36', [1, 2, 3, 4, 36]), ('2,2', [2, 2])
  )
  def test_parse(self, text, expected):
    self.assertEqual(warm_up.parse(text), expected)

  @parameterized.parameters('0', '3-1', 'x', '1-', '-2')
  def test_parse_refuses(self, text):
    with self.assertRaisesRegex(ValueError, f'--warm_up={text}: .* no size of'):
      warm_up.parse(text)

  def test_bursts_follow_each_other(self):
    cell = _System([1, 2, 3])
    warm_up.run(cell, 4, [1, 2, 3], 0.0, 60.0)
    self.assertEqual(cell.asked, [0, 1, 2, 3, 0, 1])

  def test_failure_and_silence_are_told(self):
    with self.assertRaisesRegex(warm_up.WarmUpError, 'failed: no model'):
      warm_up.run(_Broken(), 1, [1], 0.0, 60.0)
    with self.assertRaisesRegex(
      warm_up.WarmUpError, 'no answer to a burst of 2 samples for 0 s'
    ):
      warm_up.run(_Silent(), 1, [2], 0.0, 0.1)

  def test_the_first_answer_alone_may_take_longer(self):
    warm_up.run(_Slow(), 2, [1], 0.0, 0.1, 60.0)
    with self.assertRaisesRegex(warm_up.WarmUpError, 'a burst of 1 .* for 0 s'):
      warm_up.run(_Slow(), 2, [1, 1], 0.0, 0.1, 60.0)


if __name__ == '__main__':
  absltest.main()
