import threading

from absl.testing import absltest

from harness.systems import streams


def _opener(*messages):
  async def open_stream(prompt: str):
    for items in messages:
      yield [(text.replace('?', prompt), keep, [s]) for text, keep, s in items]

  return open_stream


class StreamsTest(absltest.TestCase):
  def _generate(self, *messages) -> tuple[list[tuple[str, float]], int]:
    """The answers to "x", and how often a first token was told of."""
    told = []
    future = streams.Streams(_opener(*messages)).generate(
      'x', lambda: told.append(threading.current_thread().name)
    )
    return future.result(timeout=60), len(told)

  def test_texts_and_scores_grow(self):
    found = self._generate(
      [('?é', 0, -1.0), ('a', 0, -2.0)],
      [('z', 3, -0.5), ('b', 0, -0.25)],  # 3 bytes are kept, then none.
    )
    self.assertEqual(found, ([('xéz', -1.5), ('b', -2.25)], 1))

  def test_messages_without_text_are_no_token(self):
    self.assertEqual(self._generate([('', 0, 0.0)]), ([('', 0.0)], 0))
    self.assertEqual(self._generate(), ([], 0))

  def test_reading_on_ends_with_an_error(self):
    closed = threading.Event()

    async def open_stream(prompt: str):
      try:
        yield [('a', 0, [0.0])]
        yield []
        self.fail('the call goes on')
      finally:
        closed.set()

    future = streams.Streams(open_stream).generate('x', lambda: None)
    with self.assertRaisesRegex(ValueError, 'of 1 samples sent a message of 0'):
      future.result(timeout=60)
    self.assertTrue(closed.wait(60))


if __name__ == '__main__':
  absltest.main()
