"""Tests of GenerateStream over gRPC, with a fake engine."""

import asyncio
import threading
import time
import unittest
from unittest import mock

from absl.testing import absltest
import grpc

from saxml_ext.common import errors
from saxml_ext.params import gptj
from saxml_ext.protobuf import common_pb2
from saxml_ext.protobuf import lm_pb2
from saxml_ext.protobuf import modelet_pb2
from saxml_ext.server.services import calls
from saxml_ext.server.testing import fake_runner
from saxml_ext.server.testing import server_fixture

_KEY = '/sax/test/m'
_TIMEOUT = 300
_Code = grpc.StatusCode


class _Params(gptj.TinyTokenizedFP32):
  INPUT_SEQ_LEN = 8
  BUCKET_KEYS = None
  MAX_LIVE_BATCHES = 3
  ENABLE_GENERATE_STREAM = True


class _Sampling(_Params):
  USE_BEAM_SEARCH = False


class GenerateStreamTest(absltest.TestCase):
  def _start(
    self, num_slots=2, steps=4, params=_Params, rows=1, repeat=1, **load
  ):
    self.runner = fake_runner.FakeRunner(num_slots, steps, rows, repeat)
    self.server = server_fixture.ServerFixture(
      server_fixture.fake_load_fn(params, self.runner)
    )
    self.addCleanup(self.server.stop)
    self.addCleanup(self.runner.gate.set)
    self.server.load(_KEY, **load)

  def _stream(self, text: str, timeout=_TIMEOUT):
    return self.server.lm.GenerateStream(
      lm_pb2.GenerateRequest(model_key=_KEY, text=text), timeout=timeout
    )

  def _generated(self, text: str) -> list[lm_pb2.DecodedText]:
    return list(
      self.server.lm.Generate(
        lm_pb2.GenerateRequest(model_key=_KEY, text=text), timeout=_TIMEOUT
      ).texts
    )

  def _until(self, condition) -> None:
    end = time.monotonic() + _TIMEOUT
    while not condition():
      self.assertLess(time.monotonic(), end, 'it never happened')
      time.sleep(0.005)

  def _pending(self) -> int:
    status = self.server.modelet.GetStatus(
      modelet_pb2.GetStatusRequest(include_method_stats=True)
    )
    return sum(s.pending_reqs for s in status.models[0].method_stats)

  def _read(self, messages) -> tuple[list[str], list[float]]:
    """Returns the texts and scores that a stock client assembles."""
    texts: list[bytes] = []
    scores: list[float] = []
    for message in messages:
      for i, item in enumerate(message.items):
        if i == len(texts):
          texts.append(b'')
          scores.append(0.0)
        self.assertLessEqual(item.prefix_len, len(texts[i]))
        texts[i] = texts[i][: item.prefix_len] + item.text.encode()
        (score,) = item.scores
        scores[i] += score
    return [t.decode() for t in texts], scores

  def test_beams_stream_certain_text_and_then_all_hypotheses(self):
    self._start()
    messages = list(self._stream('99,7,12'))
    self.assertEqual(
      [
        [(i.text, i.prefix_len) for i in message.items]
        for message in messages[-1:]
      ],
      [
        [(messages[-1].items[0].text, messages[-1].items[0].prefix_len)]
        + [('99', 0)]
      ],
    )
    for message in messages[:-1]:
      self.assertLen(message.items, 1)
    texts, scores = self._read(messages)
    expected = self._generated('99,7,12')
    self.assertEqual(texts, [t.text for t in expected])
    for score, answer in zip(scores, expected):
      self.assertAlmostEqual(score, answer.score)

  def test_fast_reader_gets_a_token_per_step(self):
    self._start(num_slots=1, steps=4)
    permits = self.runner.permits = threading.Semaphore(0)
    self.addCleanup(permits.release, 10)
    stream = self._stream('4,3,2,1')
    texts = []
    for _ in range(4):
      permits.release()
      texts.append(next(stream).items[0].text)
    self.assertEqual(texts, ['1', ',2', ',3', ',4'])
    self.assertEmpty(list(stream))

  def test_samples_keep_their_order(self):
    self._start(params=_Sampling, rows=2)
    messages = list(self._stream('99,7,12'))
    for message in messages:
      self.assertLen(message.items, 2)
    texts, scores = self._read(messages)
    # The fake engine's second hypothesis is in its first row.
    expected = self._generated('99,7,12')[::-1]
    self.assertEqual(texts, [t.text for t in expected])
    for score, answer in zip(scores, expected):
      self.assertAlmostEqual(score, answer.score)

  def test_prompt_is_echoed_if_configured(self):
    self._start(
      params=type('P', (_Params,), {'INCLUDE_PREFIX_IN_RESULT': True})
    )
    texts, _ = self._read(self._stream('3,4'))
    self.assertEqual(texts, [t.text for t in self._generated('3,4')])

  def test_words_end_without_the_end_id(self):
    self._start(params=type('P', (_Params,), {'TOKENIZED_OUTPUT': False}))
    texts, _ = self._read(self._stream('99,7,12'))
    self.assertEqual(texts, ['12,7', ''])

  def test_stream_has_at_least_one_message(self):
    self._start(steps=1)
    self.assertLen(list(self._stream('1,2')), 1)

  def test_disabled_method_is_refused(self):
    self._start(params=type('P', (_Params,), {'ENABLE_GENERATE_STREAM': False}))
    with self.assertRaises(grpc.RpcError) as caught:
      list(self._stream('1'))
    self.assertIs(caught.exception.code(), _Code.INVALID_ARGUMENT)
    self.assertIn(
      'does not serve lm.generate_stream. Available: lm.generate, lm.score',
      caught.exception.details(),
    )

  def test_stream_is_counted_as_its_own_method(self):
    self._start(
      params=type('P', (_Params,), {'ENABLE_GENERATE': False}),
      acls=common_pb2.AccessControlLists(items={'lm.generate': 'acl/few'}),
    )
    self.assertNotEmpty(list(self._stream('1')))

  def test_acl_restricts_the_method(self):
    self._start(
      acls=common_pb2.AccessControlLists(
        items={'lm.generate_stream': 'acl/few'}
      )
    )
    with self.assertRaises(grpc.RpcError) as caught:
      list(self._stream('1'))
    self.assertIs(caught.exception.code(), _Code.PERMISSION_DENIED)

  def test_disconnected_client_frees_its_slot(self):
    self._start(num_slots=1, steps=10**9)
    permits = self.runner.permits = threading.Semaphore(1)
    self.addCleanup(permits.release)
    stream = self._stream('1,2,3')
    next(stream)
    # Between steps, the slot is freed without an interrupt. The second step
    # cannot end yet.
    self._until(lambda: len(self.runner.max_steps) == 2)
    stream.cancel()
    self._until(lambda: self.runner.interrupts)
    permits.release()
    self._until(lambda: self.runner.released == [0])

  def test_slow_reader_delays_no_request_and_buffers_nothing(self):
    # A step adds about 2,000 tokens (6 kB), and all steps add more than a
    # megabyte.
    steps = 200
    self._start(num_slots=2, steps=steps, repeat=50_000)
    idle = self._stream('90,91,92,93,94,95,96,97')
    first = next(idle)
    self.assertLen(self._generated('5'), 2)
    self._until(lambda: self.runner.steps >= steps)
    self._until(lambda: not self._pending())
    # A late reader gets the full text in fewer messages than there were steps.
    messages = [first, *idle]
    self.assertLess(len(messages), steps // 2)
    texts, _ = self._read(messages)
    self.assertEqual(texts[0].count(','), 8 * 50_000 - 1)

  def test_engine_failure_fails_the_stream(self):
    self._start(num_slots=1, steps=10**9)
    stream = self._stream('1,2')
    next(stream)
    self.runner.fail_on_step = RuntimeError('device lost')
    with self.assertRaises(grpc.RpcError) as caught:
      list(stream)
    self.assertIs(caught.exception.code(), _Code.INTERNAL)
    self.assertIn('device lost', caught.exception.details())


class _Reader:
  """A fake reader of a stream with limited room.

  Attributes:
    read: The messages that were read.
  """

  def __init__(self, room: int):
    self.read: list[str] = []
    self._room = room

  async def write(self, message: str) -> None:
    if len(self.read) == self._room:
      await asyncio.Event().wait()  # Waits forever.
    self.read.append(message)


class WriteTest(unittest.IsolatedAsyncioTestCase, absltest.TestCase):
  async def test_stalled_reader_is_disconnected(self):
    reader = _Reader(room=2)
    with mock.patch.object(calls, 'STALL_SECS', 0.05):
      await calls.write(reader, 'one')
      await calls.write(reader, 'two')
      with self.assertRaisesRegex(
        errors.DeadlineExceeded, 'read nothing of the stream for 0.05 s'
      ):
        await calls.write(reader, 'three')
    self.assertEqual(reader.read, ['one', 'two'])

  async def test_disconnected_client_is_not_a_stalled_reader(self):
    writing = asyncio.create_task(calls.write(_Reader(room=0), 'one'))
    await asyncio.sleep(0)
    writing.cancel()
    with self.assertRaises(asyncio.CancelledError):
      await writing


if __name__ == '__main__':
  absltest.main()
