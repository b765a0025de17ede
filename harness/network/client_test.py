import queue
import socket
import threading
from unittest import mock

from absl.testing import absltest
import grpc
from grpc_health.v1 import health_pb2
from grpc_health.v1 import health_pb2_grpc
import numpy as np

from harness.loadgen import system
from harness.network import client
from harness.network.testing import background
from harness.network.testing import toy_sut

_PATIENCE_SECS = 300.0


class _Reply:
  """A reply that puts its calls into a queue."""

  def __init__(self):
    self.calls: queue.SimpleQueue = queue.SimpleQueue()

  def first_token(self, token: int | None = None) -> None:
    self.calls.put('first token')

  def done(self, answer: system.Answer) -> None:
    self.calls.put(answer)

  def failed(self, error: Exception) -> None:
    self.calls.put(error)

  def next(self):
    return self.calls.get(timeout=_PATIENCE_SECS)


class _Silent:
  """A system that never answers."""

  def __init__(self, unused_inputs):
    self.requests = threading.Semaphore(0)

  def answer(self, index: int, reply: system.Reply) -> None:
    self.requests.release()

  def close(self) -> None:
    pass


class ClientTest(absltest.TestCase):
  def sut(self, make=toy_sut.Reversing, name='toy') -> background.Sut:
    return self.enterContext(background.Sut(make, name))

  def system(self, addresses, payloads, connections=1):
    made = client.NetworkSystem(addresses, payloads, connections)
    self.addCleanup(made.close)
    return made

  def test_the_input_goes_out_and_the_answer_comes_back(self):
    sut = self.sut()
    payloads = [{'input_ids': np.arange(n, dtype=np.int64)} for n in (3, 1)]
    made = self.system([sut.address], payloads)
    for index, ids in ((0, [2, 1, 0]), (1, [0]), (0, [2, 1, 0])):
      reply = _Reply()
      made.answer(index, reply)
      self.assertEqual(reply.next(), 'first token')
      answer = reply.next()
      self.assertEqual(answer.data.tolist(), ids)
      self.assertEqual(answer.data.dtype, np.int64)
      self.assertEqual(answer.tokens, len(ids))
    self.assertEmpty(sut.inputs)  # No input is kept.

  def test_an_empty_answer(self):
    class Empty(toy_sut.Reversing):
      def answer(self, index, reply):
        self._inputs[index]
        reply.done(system.Answer(np.zeros(0, np.int64)))

    made = self.system([self.sut(Empty).address], [{'a': np.zeros(1)}])
    reply = _Reply()
    made.answer(0, reply)
    self.assertEqual(reply.next().data.shape, (0,))

  def test_many_samples_on_many_connections_to_two_nodes(self):
    suts = [self.sut(name='a'), self.sut(name='b')]
    payloads = [{'input_ids': np.array([n, n + 1])} for n in range(500)]
    made = self.system([sut.address for sut in suts], payloads, 3)
    self.assertRegex(made.name(), r'^Network SUT: a on \S+:\d+, b on \S+:\d+$')
    replies = [_Reply() for _ in payloads]
    for index, reply in enumerate(replies):
      made.answer(index, reply)
    for index, reply in enumerate(replies):
      self.assertEqual(reply.next(), 'first token')
      self.assertEqual(reply.next().data.tolist(), [index + 1, index])

  def test_the_node_with_fewest_unanswered_samples_is_next(self):
    suts = [self.sut(_Silent, 'a'), self.sut(_Silent, 'b')]
    made = self.system([s.address for s in suts], [{'ids': np.zeros(1)}])
    for _ in range(6):
      made.answer(0, _Reply())
    for sut in suts:
      for _ in range(3):
        self.assertTrue(sut.system.requests.acquire(timeout=_PATIENCE_SECS))
      self.assertLen(sut.inputs, 3)

  def test_two_nodes_of_one_name(self):
    # Two containers could have the same name.
    with mock.patch.object(client._Connection, 'name', return_value='toy'):
      with self.assertRaisesRegex(ValueError, "same name 'toy'"):
        client.NetworkSystem(['h:1', 'h:2'], [])

  def test_an_address_given_twice(self):
    with self.assertRaisesRegex(ValueError, 'h:1: .* twice'):
      client.NetworkSystem(['h:1', 'h:1'], [])

  def test_no_address(self):
    with self.assertRaisesRegex(ValueError, 'has no node'):
      client.NetworkSystem([], [])

  def test_an_error_of_the_system_is_reported_with_the_address(self):
    sut = self.sut()
    made = self.system([sut.address], [{'input_ids': np.array([-5])}])
    reply = _Reply()
    made.answer(0, reply)
    error = reply.next()
    self.assertIsInstance(error, client.SutError)
    self.assertEqual(
      str(error), f'{sut.address} failed: No token has the ID -5.'
    )
    self.assertEmpty(sut.inputs)

  def test_a_sut_that_goes_away_is_reported(self):
    sut = self.sut(_Silent)
    made = self.system([sut.address], [{'ids': np.zeros(1)}])
    replies = [_Reply(), _Reply()]
    for reply in replies:
      made.answer(0, reply)
      self.assertTrue(sut.system.requests.acquire(timeout=_PATIENCE_SECS))
    sut.stop()
    for reply in replies:
      self.assertRegex(
        str(reply.next()),
        f'at {sut.address} disconnected with 2 samples unanswered .*repeat',
      )
    with self.assertRaisesRegex(client.SutError, 'disconnected'):
      made.answer(0, _Reply())

  def test_missing_sut_is_reported(self):
    with socket.socket() as taken:
      taken.bind(('127.0.0.1', 0))
      address = f'127.0.0.1:{taken.getsockname()[1]}'
      with self.assertRaisesRegex(
        ConnectionError, f'at {address} .*refused.*[.] Start it there'
      ):
        client.NetworkSystem([address], [])

  def test_health(self):
    sut = self.sut()
    with grpc.insecure_channel(sut.address) as channel:
      health = health_pb2_grpc.HealthStub(channel).Check(
        health_pb2.HealthCheckRequest(service='harness.network.NetworkSut'),
        timeout=_PATIENCE_SECS,
      )
    self.assertEqual(health.status, health_pb2.HealthCheckResponse.SERVING)


class SutNameTest(absltest.TestCase):
  def test_all_nodes_are_named(self):
    self.assertEqual(
      client.join({'h:1': 'gptj-a', 'h:2': 'gptj-b'}),
      'Network SUT: gptj-a, gptj-b',
    )

  def test_two_nodes_of_one_name(self):
    with self.assertRaisesRegex(
      ValueError, "h:1 and h:2 have the same name 'x'"
    ):
      client.join({'h:1': 'x', 'h:2': 'x'})

  def test_no_node(self):
    with self.assertRaisesRegex(ValueError, 'has no node. Pass at least one'):
      client.join({})


if __name__ == '__main__':
  absltest.main()
