from concurrent import futures
import threading

from absl.testing import absltest
from absl.testing import parameterized

from harness.benchmarks import gptj
from harness.benchmarks import llama
from harness.systems import cell_run
from harness.systems.testing import replies
from saxml_ext.client.testing import fake_cell
from saxml_ext.common import errors
from saxml_ext.protobuf import common_pb2
from saxml_ext.protobuf import lm_pb2


class CellNameTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.cell = fake_cell.FakeCell(self.create_tempdir().full_path)
    self.addCleanup(self.cell.stop)
    self.target = (fake_cell.MODEL, self.cell.root)

  def test_the_model_and_its_servers_are_named(self):
    addresses = sorted(self.cell.add_server().address for _ in range(2))
    model = f'{fake_cell.MODEL} (p.A from None)'
    self.assertEqual(
      cell_run.network_name(*self.target),
      f'Network SUT: {model} on {addresses[0]}, {model} on {addresses[1]}',
    )

  def test_a_server_that_has_not_loaded_the_model(self):
    server = self.cell.add_server()
    server.status = common_pb2.ModelStatus.LOADING
    with self.assertRaisesRegex(ValueError, f'{server.address} has not loaded'):
      cell_run.network_name(*self.target)

  def test_a_server_that_is_gone(self):
    server = self.cell.add_server()
    server.stop()
    with self.assertRaisesRegex(
      ConnectionError, f'{server.address} does not respond .*UNAVAILABLE'
    ):
      cell_run.network_name(*self.target)

  def test_no_server(self):
    with self.assertRaisesRegex(ValueError, 'no model server yet'):
      cell_run.network_name(*self.target)

  def test_no_model(self):
    with self.assertRaises(errors.NotFound):
      cell_run.network_name('/sax/test/other', self.cell.root)


def _reply(
  result=None, error=None, end_ids=(), benchmark=gptj.GPTJ
) -> replies.Reply:
  """Returns the system's reply for a given result or error of the model."""
  future: futures.Future = futures.Future()
  if error:
    future.set_exception(error)
  else:
    future.set_result(result)
  sent = []

  def generate(prompt: str, on_first_token, on_done) -> None:
    del on_first_token
    sent.append(prompt)
    future.add_done_callback(on_done)

  reply = replies.Reply()
  made = cell_run.CellSystem(generate, ['5', '6'], end_ids, benchmark)
  made.answer(1, reply)
  assert sent == ['6']
  return reply


class CellSystemTest(parameterized.TestCase):
  @parameterized.parameters(
    ('7,8', [7, 8]),
    ('7,8,50256', [7, 8]),
    ('7,8,50256,50256', [7, 8]),
    ('7,50256,8', [7]),
    ('50256', []),
    ('', []),
  )
  def test_answers_end_before_the_first_end_id(self, text, expected):
    answer = _reply([(text, 0.0), ('0', -2.0)], end_ids={50256}).answer()
    self.assertEqual(answer.data.tolist(), expected)
    self.assertEqual(answer.data.dtype, 'int64')
    self.assertEqual(answer.tokens, len(expected))

  @parameterized.parameters(
    ('7,8', [7, 8]),
    ('7,8,9', [7, 8, 9]),
    ('7,8,9,9', [7, 8, 9]),
    ('7,10,9', [7, 10]),
  )
  def test_a_llama_logs_its_end_id_once(self, text, expected):
    answer = _reply(
      [(text, 0.0)], end_ids={9, 10}, benchmark=llama.LLAMA
    ).answer()
    self.assertEqual(answer.data.tolist(), expected)
    self.assertEqual(answer.data.dtype, 'int32')
    self.assertEqual(answer.tokens, len(expected))

  def test_failed_call(self):
    error = RuntimeError('connection refused')
    self.assertIs(_reply(error=error).next(), error)

  def test_text_instead_of_ids(self):
    self.assertRegex(
      str(_reply([('Some words', 0.0)]).next()),
      "returned 'Some words' instead of comma-separated.*tokenized serving params",
    )

  def test_no_answer(self):
    self.assertRegex(str(_reply([]).next()), 'returned no answer')


class GeneratorTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    made = fake_cell.FakeCell(self.create_tempdir().full_path)
    self.addCleanup(made.stop)
    self._server = made.add_server()
    self._target = (fake_cell.MODEL, made.root)

  def _reply(self, prompt: str, stream: bool) -> replies.Reply:
    model_id, root = self._target
    generate = cell_run.generator(model_id, root, fake_cell.PATIENCE, stream)
    reply = replies.Reply()
    cell_run.CellSystem(generate, [prompt], (), gptj.GPTJ).answer(0, reply)
    return reply

  def test_a_whole_answer_tells_of_no_first_token(self):
    self._server.texts['5'] = [('7,8,9', -1.0)]
    answer = self._reply('5', stream=False).answer()
    self.assertEqual(answer.data.tolist(), [7, 8, 9])

  def test_a_stream_tells_of_its_first_token(self):
    server = self._server
    server.gate.clear()

    def messages():
      yield _message(('', 0))  # No text yet.
      yield _message(('7', 0))
      server.gate.wait(fake_cell.PATIENCE)
      yield _message((',8', 1))
      yield _message(('6,9', 2))

    server.streams['5'] = messages()
    reply = self._reply('5', stream=True)
    # The server has not yet sent the rest of the answer.
    self.assertEqual(reply.next(), replies.FIRST_TOKEN)
    self.assertEqual(reply.token, 7)
    server.gate.set()
    self.assertEqual(reply.answer().data.tolist(), [7, 6, 9])

  def test_the_first_of_several_samples_counts(self):
    self._server.streams['5'] = [
      _message(('7', 0), ('1', 0)),
      _message((',8', 1), (',2', 1)),
    ]
    reply = self._reply('5', stream=True)
    self.assertEqual(reply.next(), replies.FIRST_TOKEN)
    self.assertEqual(reply.answer().data.tolist(), [7, 8])

  def test_a_stream_that_breaks(self):
    self._server.streams['5'] = [_message(('7', 0)), errors.Unavailable('mid')]
    reply = self._reply('5', stream=True)
    self.assertEqual(reply.next(), replies.FIRST_TOKEN)
    self.assertRegex(str(reply.next()), 'mid')

  def test_a_message_of_other_samples(self):
    self._server.streams['5'] = [
      _message(('7', 0), ('9', 0)),
      _message((',8', 1)),
    ]
    reply = self._reply('5', stream=True)
    self.assertEqual(reply.next(), replies.FIRST_TOKEN)
    self.assertRegex(str(reply.next()), 'of 2 samples sent a message of 1')

  def test_beams_that_follow_at_the_end(self):
    self._server.streams['5'] = [
      _message(('7', 0)),
      _message((',8', 1), ('9', 0)),
    ]
    reply = self._reply('5', stream=True)
    self.assertEqual(reply.next(), replies.FIRST_TOKEN)
    self.assertEqual(reply.answer().data.tolist(), [7, 8])


def _message(*items: tuple[str, int]) -> lm_pb2.GenerateStreamResponse:
  return lm_pb2.GenerateStreamResponse(
    items=[
      lm_pb2.GenerateStreamItem(text=text, prefix_len=keep, scores=[-0.5])
      for text, keep in items
    ]
  )


def _opener(*messages):
  async def open_stream(prompt: str):
    for items in messages:
      yield [(text.replace('?', prompt), keep, [s]) for text, keep, s in items]

  return open_stream


def _future(open_stream, on_first_token=lambda token: None) -> futures.Future:
  """Sends the prompt "5"; checks that both callbacks are on one thread."""
  answer: futures.Future = futures.Future()
  threads = set()

  def first(token: int) -> None:
    threads.add(threading.get_ident())
    on_first_token(token)

  def done(future: futures.Future) -> None:
    threads.add(threading.get_ident())
    if error := future.exception():
      answer.set_exception(error)
    elif len(threads) > 1 or threading.main_thread().ident in threads:
      answer.set_exception(AssertionError(threads))
    else:
      answer.set_result(future.result())

  cell_run.Streams(open_stream).generate('5', first, done)
  return answer


class StreamsTest(absltest.TestCase):
  def _generate(self, *messages) -> tuple[list[tuple[str, float]], list[int]]:
    """Returns the answers to "5" and the reported first tokens."""
    tokens = []
    future = _future(_opener(*messages), tokens.append)
    return future.result(timeout=60), tokens

  def test_texts_and_scores_grow(self):
    answer = self._generate(
      [('?,1', 0, -1.0), ('7', 0, -2.0)],
      [('2,3', 2, -0.5), ('8', 0, -0.25)],  # Keeps 2 bytes, then none.
    )
    self.assertEqual(answer, ([('5,2,3', -1.5), ('8', -2.25)], [5]))

  def test_messages_without_text_are_no_token(self):
    self.assertEqual(self._generate([('', 0, 0.0)]), ([('', 0.0)], []))
    self.assertEqual(self._generate(), ([], []))

  def test_text_instead_of_ids_is_refused(self):
    with self.assertRaisesRegex(
      ValueError, "returned 'a word' instead of comma"
    ):
      self._generate([('a word', 0, 0.0)])

  def test_reading_on_ends_with_an_error(self):
    closed = threading.Event()

    async def open_stream(prompt: str):
      try:
        yield [('7', 0, [0.0])]
        yield []
        self.fail('the call goes on')
      finally:
        closed.set()

    future = _future(open_stream)
    with self.assertRaisesRegex(ValueError, 'of 1 samples sent a message of 0'):
      future.result(timeout=60)
    self.assertTrue(closed.wait(60))


if __name__ == '__main__':
  absltest.main()
