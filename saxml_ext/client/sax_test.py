"""Tests requests to models, against a cell on loopback."""

from concurrent import futures
import threading
import time

from absl.testing import absltest
from absl.testing import parameterized
import grpc

from saxml_ext.client import sax
from saxml_ext.client.testing import fake_cell
from saxml_ext.common import errors
from saxml_ext.protobuf import lm_pb2

_PATIENCE = fake_cell.PATIENCE


def _timeout(seconds: float) -> sax.ModelOptions:
  return sax.ModelOptions(timeout=seconds)


class _CellTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.cell = fake_cell.FakeCell(self.create_tempdir().full_path)
    self.addCleanup(self.cell.stop)
    sax.SetRoot(self.cell.root)


class LMTest(_CellTest):
  def setUp(self):
    super().setUp()
    self.server = self.cell.add_server()
    self.lm = sax.Model(fake_cell.MODEL).LM()

  def test_generate(self):
    self.server.texts['hi'] = [('one', -1.5), ('two', -0.25)]
    options = sax.ModelOptions()
    options.SetExtraInput('temperature', 0.5)
    options.SetExtraInputTensor('eos_id', [1, 2])
    options.SetExtraInputString('stop', 'x')
    self.assertEqual(
      self.lm.Generate('hi', options), [('one', -1.5), ('two', -0.25)]
    )
    request = lm_pb2.GenerateRequest(model_key=fake_cell.MODEL, text='hi')
    request.extra_inputs.items['temperature'] = 0.5
    request.extra_inputs.tensors['eos_id'].values.extend([1, 2])
    request.extra_inputs.strings['stop'] = 'x'
    self.assertEqual(self.server.requests, [request])

  def test_extra_inputs_are_sent_also_when_empty(self):
    self.lm.Generate('hi')
    self.assertTrue(self.server.requests[0].HasField('extra_inputs'))

  def test_score_embed_gradient(self):
    self.assertEqual(self.lm.Score('p', ['s', 't']), [-1.0, -2.0])
    self.assertEqual(self.lm.Embed('1 2.5'), [1.0, 2.5])
    self.assertEqual(self.lm.Gradient('p', 's'), ([-3.5], {'x': [0.0, 0.125]}))

  @parameterized.parameters('UNAVAILABLE', 'RESOURCE_EXHAUSTED', 'NOT_FOUND')
  def test_passing_errors_are_retried(self, code: str):
    text = f'flaky:{code}:3'
    self.assertEqual(self.lm.Generate(text), [(text, -1.0)])
    self.assertLen(self.server.requests, 4)
    got = self.lm.GenerateAsync('again ' + text)
    self.assertEqual(got.result(_PATIENCE), [('again ' + text, -1.0)])

  def test_full_replica_is_avoided_for_its_retry_delay(self):
    for ask in (
      self.lm.Generate,
      lambda t: self.lm.GenerateAsync(t).result(_PATIENCE),
    ):
      self.server.requests.clear()
      begin = time.monotonic()
      ask('full:0.4:1')
      self.assertGreaterEqual(time.monotonic() - begin, 0.4)
      self.assertLen(self.server.requests, 2)
      self.server.forget()

  def test_full_replica_is_replaced_at_once(self):
    other = self.cell.add_server()
    while not other.requests:  # The client must learn of it first.
      self.lm.Generate('hi')
    for ask in (
      self.lm.Generate,
      lambda t: self.lm.GenerateAsync(t).result(_PATIENCE),
    ):
      for server in (self.server, other):
        server.requests.clear()
        server.forget()
      ask('full:20:1')
      self.assertNotEmpty(self.server.requests)
      self.assertNotEmpty(other.requests)

  @parameterized.parameters('INTERNAL', 'INVALID_ARGUMENT', 'PERMISSION_DENIED')
  def test_other_errors_are_final(self, code: str):
    expected = type(errors.from_code(grpc.StatusCode[code], ''))
    with self.assertRaisesRegex(expected, f'injected {code}'):
      self.lm.Generate(f'err:{code}')
    with self.assertRaisesRegex(expected, f'injected {code}'):
      self.lm.GenerateAsync(f'err:{code}').result(_PATIENCE)
    self.assertLen(self.server.requests, 2)

  def test_fail_fast(self):
    lm = sax.Model(fake_cell.MODEL, sax.Options(fail_fast=True)).LM()
    self.assertLen(lm.Generate('flaky:NOT_FOUND:2'), 1)
    with self.assertRaises(errors.Unavailable):
      lm.Generate('err:UNAVAILABLE')

  def test_deadline_keeps_the_last_cause(self):
    self.lm.Generate('a connection is made')
    pattern = (
      'lm.generate of /sax/test/m: no answer within 1 s in [0-9]+ attempts,'
      ' last error: RESOURCE_EXHAUSTED: injected'
    )
    begin = time.monotonic()
    with self.assertRaisesRegex(errors.DeadlineExceeded, pattern):
      self.lm.Generate('err:RESOURCE_EXHAUSTED', _timeout(1))
    with self.assertRaisesRegex(errors.DeadlineExceeded, pattern):
      self.lm.GenerateAsync('err:RESOURCE_EXHAUSTED', _timeout(1)).result(
        _PATIENCE
      )
    self.assertGreater(time.monotonic() - begin, 1.95)

  def test_slow_answer_misses_the_deadline(self):
    self.lm.Generate('a connection is made')
    for call in (
      lambda: self.lm.Generate('sleep:1', _timeout(0.2)),
      lambda: self.lm.GenerateAsync('sleep:1', _timeout(0.2)).result(_PATIENCE),
    ):
      with self.assertRaisesRegex(errors.DeadlineExceeded, 'within 0.2 s$'):
        call()

  def test_unknown_model_fails_at_once(self):
    lm = sax.Model('/sax/test/nope').LM()
    with self.assertRaisesRegex(errors.NotFound, '/sax/test/nope not found'):
      lm.Generate('hi')
    with self.assertRaisesRegex(errors.NotFound, '/sax/test/nope not found'):
      lm.GenerateAsync('hi').result(_PATIENCE)

  def test_bad_id_fails_the_first_request(self):
    lm = sax.Model('nonsense').LM()
    with self.assertRaisesRegex(errors.InvalidArgument, 'nonsense'):
      lm.Generate('hi')

  def test_proxy(self):
    lm = sax.Model(
      '/sax/unknown/m', sax.Options(proxy_addr=self.server.address)
    ).LM()
    self.assertEqual(lm.Generate('hi'), [('hi', -1.0)])

  def test_lost_replica_is_replaced(self):
    other = self.cell.add_server()
    for _ in range(10):
      self.lm.Generate('hi')
    self.server.stop()
    for _ in range(10):
      self.assertEqual(
        self.lm.Generate('hi', _timeout(_PATIENCE)), [('hi', -1.0)]
      )
    self.assertNotEmpty(other.requests)

  def test_request_waits_for_a_replica(self):
    self.cell.publish('/sax/test/n')
    lm = sax.Model('/sax/test/n').LM()
    waiting = lm.GenerateAsync('async', _timeout(_PATIENCE))
    threading.Timer(0.2, self.cell.add_server, ['/sax/test/n']).start()
    self.assertEqual(lm.Generate('sync', _timeout(_PATIENCE)), [('sync', -1.0)])
    self.assertEqual(waiting.result(_PATIENCE), [('async', -1.0)])

  def test_no_replica_in_time(self):
    self.cell.publish('/sax/test/n')
    lm = sax.Model('/sax/test/n').LM()
    for call in (
      lambda: lm.Generate('hi', _timeout(0.2)),
      lambda: lm.GenerateAsync('hi', _timeout(0.2)).result(_PATIENCE),
    ):
      with self.assertRaisesRegex(
        errors.DeadlineExceeded, 'UNAVAILABLE: no replica of /sax/test/n'
      ):
        call()

  def test_many_threads(self):
    texts = [str(i) for i in range(64)]
    with futures.ThreadPoolExecutor(8) as pool:
      got = list(pool.map(self.lm.Generate, texts))
    self.assertEqual(got, [[(text, -1.0)] for text in texts])

  def test_many_requests_without_threads(self):
    before = threading.active_count()
    pending = [self.lm.GenerateAsync(str(i)) for i in range(100)]
    # The servers' own threads also run in this process.
    self.assertLess(threading.active_count() - before, 32 + 10)
    got = [future.result(_PATIENCE) for future in pending]
    self.assertEqual(got, [[(str(i), -1.0)] for i in range(100)])

  def test_cancel(self):
    self.server.gate.clear()
    self.addCleanup(self.server.gate.set)
    future = self.lm.GenerateAsync('wait:')
    while not self.server.requests:
      time.sleep(0.01)
    self.assertTrue(future.cancel())
    self.assertTrue(self.server.cancelled.wait(_PATIENCE))
    with self.assertRaises(futures.CancelledError):
      future.result()


class StreamTest(_CellTest):
  def setUp(self):
    super().setUp()
    self.server = self.cell.add_server()
    self.lm = sax.Model(fake_cell.MODEL).LM()
    self.calls = []

  def stream(self, text: str) -> None:
    self.lm.GenerateStream(
      text, lambda last, items: self.calls.append((last, items))
    )

  def message(self, text: str, prefix_len: int = 0, **scores):
    item = lm_pb2.GenerateStreamItem(text=text, prefix_len=prefix_len, **scores)
    return lm_pb2.GenerateStreamResponse(items=[item])

  def test_stream_yields_messages_and_ends(self):
    self.server.streams['flaky:UNAVAILABLE:2'] = [
      self.message('Hel', scores=[-0.5]),
      self.message('lo', 3, score=-0.25),
    ]
    self.stream('flaky:UNAVAILABLE:2')
    self.assertEqual(
      self.calls,
      [
        (False, [('Hel', 0, [-0.5])]),
        (False, [('lo', 3, [-0.25])]),
        (True, []),
      ],
    )

  def test_error_after_the_first_message_is_final(self):
    self.server.streams['x'] = [
      self.message('a'),
      errors.Unavailable('mid-stream'),
    ]
    with self.assertRaisesRegex(errors.Unavailable, 'mid-stream'):
      self.stream('x')
    self.assertLen(self.calls, 1)
    self.assertLen(self.server.requests, 1)


class ModelOptionsTest(absltest.TestCase):
  def test_extra_inputs(self):
    options = sax.ModelOptions()
    options.SetExtraInput('a', 0.5)
    self.assertEqual(options.GetExtraInput('a'), 0.5)
    with self.assertRaisesRegex(
      errors.NotFound, '"b" is not set. Available: a'
    ):
      options.GetExtraInput('b')
    self.assertIn('key: "a"', options.ToDebugString())

  def test_timeout(self):
    options = sax.ModelOptions()
    self.assertEqual(options.GetTimeout(), -1)
    options.SetTimeout(2.5)
    self.assertEqual(options.GetTimeout(), 2.5)


if __name__ == '__main__':
  absltest.main()
