import asyncio
import collections
import queue
import re
import signal
import socket
import subprocess
from unittest import mock

from absl.testing import absltest
import grpc
import numpy as np

from harness.loadgen import system
from harness.network import dispatch_pb2
from harness.network import dispatch_pb2_grpc
from harness.network import payload
from harness.network import query_server
from harness.network.testing import background
from harness.network.testing import toy_sut
from serve import programs

_PATIENCE_SECS = 300.0
_TOY = 'harness/network/testing/toy_sut'


class _Pending:
  """A system that keeps its samples until the test answers them."""

  def __init__(self, inputs: query_server.Inputs):
    self.requests: queue.SimpleQueue = queue.SimpleQueue()
    self.inputs = inputs

  def answer(self, index: int, reply: system.Reply) -> None:
    self.requests.put((index, reply))

  def close(self) -> None:
    pass

  def next(self) -> tuple[int, system.Reply]:
    return self.requests.get(timeout=_PATIENCE_SECS)


def _sample(sample_id: int) -> dispatch_pb2.Sample:
  return dispatch_pb2.Sample(
    id=sample_id,
    inputs=payload.encode({'input_ids': np.array([sample_id, 7])}),
  )


class ServerTest(absltest.TestCase):
  def enter(self, make=_Pending) -> background.Sut:
    sut = self.enterContext(background.Sut(make))
    channel = self.enterContext(grpc.insecure_channel(sut.address))
    self.stub = dispatch_pb2_grpc.NetworkSutStub(channel)
    return sut

  def test_the_system_reads_inputs_until_it_answers(self):
    sut = self.enter()
    outcomes = self.stub.Answer(iter([_sample(5)]), timeout=_PATIENCE_SECS)
    index, reply = sut.system.next()
    self.assertEqual(sut.inputs[index]['input_ids'].tolist(), [5, 7])
    reply.done(system.Answer(np.array([9]), 1))
    (outcome,) = outcomes
    self.assertEqual(outcome.id, 5)
    self.assertEqual(outcome.answer.tokens, 1)
    with self.assertRaises(KeyError):
      sut.inputs[index]

  def test_answers_come_in_the_systems_order(self):
    sut = self.enter()
    outcomes = self.stub.Answer(map(_sample, range(3)), timeout=_PATIENCE_SECS)
    requests = [sut.system.next() for _ in range(3)]
    for _, reply in reversed(requests):
      reply.done(system.Answer(np.zeros(1)))
    self.assertEqual([outcome.id for outcome in outcomes], [2, 1, 0])

  def test_indices_of_two_streams_differ(self):
    sut = self.enter()
    streams = [self.stub.Answer(map(_sample, range(2))) for _ in range(2)]
    requests = [sut.system.next() for _ in range(4)]
    self.assertLen({index for index, _ in requests}, 4)
    for _, reply in requests:
      reply.failed(ValueError('no'))
    for stream in streams:
      self.assertCountEqual([outcome.id for outcome in stream], [0, 1])

  def test_a_damaged_sample_is_refused(self):
    self.enter(toy_sut.Reversing)
    wrong = _sample(1)
    wrong.inputs[0].shape[0] = 3
    samples = iter([wrong, _sample(2)])
    outcomes = {
      outcome.id: outcome
      for outcome in self.stub.Answer(samples, timeout=_PATIENCE_SECS)
      if not outcome.first_token
    }
    self.assertRegex(outcomes[1].error, "'input_ids' has 16 bytes")
    self.assertEqual(outcomes[2].error, '')

  def test_the_system_has_no_more_than_the_limit(self):
    with mock.patch.object(query_server, '_MOST_UNANSWERED', 2):
      sut = self.enter()
      outcomes = self.stub.Answer(map(_sample, range(5)))
      waiting = collections.deque(sut.system.next() for _ in range(2))
      self.assertTrue(sut.system.requests.empty())
      for _ in range(3):
        waiting.popleft()[1].done(system.Answer(np.zeros(1)))
        waiting.append(sut.system.next())
        self.assertTrue(sut.system.requests.empty())
        self.assertLen(sut.inputs, 2)
      for _, reply in waiting:
        reply.done(system.Answer(np.zeros(1)))
      self.assertLen(list(outcomes), 5)

  def test_a_client_that_goes_away(self):
    sut = self.enter()
    cancelled = self.stub.Answer(iter([_sample(1)]))
    _, reply = sut.system.next()
    with self.assertLogs(level='WARNING') as logs:
      cancelled.cancel()
      # The server accepts samples of other clients before and after the
      # disconnect.
      outcomes = self.stub.Answer(iter([_sample(2)]), timeout=_PATIENCE_SECS)
      _, other = sut.system.next()
      other.done(system.Answer(np.zeros(1)))
      self.assertEqual([outcome.id for outcome in outcomes], [2])
      while not logs.records:
        self.stub.Name(dispatch_pb2.NameRequest(), timeout=_PATIENCE_SECS)
    self.assertIn('ended with 1 samples unanswered', logs.output[0])
    reply.done(system.Answer(np.zeros(1)))
    self.assertEmpty(sut.inputs)

  def test_no_name(self):
    with self.assertRaisesRegex(ValueError, 'needs a name'):
      asyncio.run(query_server.run(_Pending, 0, ' ', asyncio.Event(), print))


class ProgramTest(absltest.TestCase):
  def start(self, **flags) -> subprocess.Popen:
    command = programs.command(_TOY, {'network': 'sut'} | flags)
    process = self.enterContext(
      subprocess.Popen(
        command.argv,
        env=command.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
      )
    )
    self.addCleanup(process.kill)
    return process

  def test_a_signal_ends_it_even_with_samples_unanswered(self):
    process = self.start(port=0, silent_after=0)
    line = process.stdout.readline()
    port = re.fullmatch(
      r'toy on \S+:(\d+) is ready, .* --sut_server=<this host>:\1\n', line
    ).group(1)
    with grpc.insecure_channel(f'127.0.0.1:{port}') as channel:
      stub = dispatch_pb2_grpc.NetworkSutStub(channel)
      samples: queue.SimpleQueue = queue.SimpleQueue()
      samples.put(_sample(1))
      outcomes = stub.Answer(iter(samples.get, None))
      stub.Name(dispatch_pb2.NameRequest(), timeout=_PATIENCE_SECS)
      process.send_signal(signal.SIGTERM)
      text, _ = process.communicate(timeout=_PATIENCE_SECS)
      self.assertEqual(text, 'Stopped with 1 samples unanswered\n')
      self.assertEqual(process.returncode, 0)
      with self.assertRaises(grpc.RpcError):
        next(outcomes)
      samples.put(None)

  def test_a_signal_ends_it_while_it_loads(self):
    for number in (signal.SIGINT, signal.SIGTERM):
      process = self.start(port=0, load_secs=_PATIENCE_SECS)
      self.assertEqual(process.stdout.readline(), 'loading\n')
      process.send_signal(number)
      _, errors = process.communicate(timeout=_PATIENCE_SECS)
      self.assertEqual(process.returncode, -number)
      self.assertNotIn('Traceback', errors)

  def test_a_signal_ends_it_when_all_is_answered(self):
    process = self.start(port=0)
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    text, errors = process.communicate(timeout=_PATIENCE_SECS)
    self.assertEqual((process.returncode, text), (0, ''))
    self.assertNotIn('Traceback', errors)

  def test_a_port_that_is_taken(self):
    with socket.socket(socket.AF_INET6) as taken:
      taken.bind(('::', 0))
      taken.listen()
      port = taken.getsockname()[1]
      process = self.start(port=port)
      _, text = process.communicate(timeout=_PATIENCE_SECS)
    self.assertEqual(process.returncode, 1)
    self.assertRegex(text, f'network SUT: port {port} is in use')
    self.assertNotIn('Traceback', text)


if __name__ == '__main__':
  absltest.main()
