from concurrent import futures
import ctypes
import os
import threading
import time
import types
from unittest import mock

from absl.testing import absltest
import mlperf_loadgen
import numpy as np

from harness.benchmarks import gptj
from harness.loadgen import loadgen_log
from harness.loadgen import settings
from harness.loadgen import sut as sut_lib
from harness.loadgen import system
from harness.rules import rounds
from saxml_ext.evaluation import rouge


class _Model:
  """A model that answers sample 7 with [7, 8] and counts waiting samples."""

  def __init__(self):
    self._pool = futures.ThreadPoolExecutor(16)
    self._lock = threading.Lock()
    self.waiting = self.most_waiting = 0

  def answer(self, index: int, reply: system.Reply) -> None:
    with self._lock:
      self.waiting += 1
      self.most_waiting = max(self.waiting, self.most_waiting)
    self._pool.submit(self._answer, index, reply)

  def _answer(self, index: int, reply: system.Reply) -> None:
    reply.first_token()
    time.sleep(0.01)
    with self._lock:
      self.waiting -= 1
    reply.done(system.Answer(np.array([index, index + 1]), 2))


class _Function:
  """A system that is one function."""

  def __init__(self, function):
    self.answer = function


def _sample(index: int):
  return types.SimpleNamespace(id=100 + index, index=index)


def _sut(answer, sizes=(1, 1), copy=2, concurrency=1):
  return sut_lib.SystemUnderTest(_Function(answer), sizes, copy, concurrency)


def _logs_to(logged: list[list[int]]):
  """Returns a stand-in for LoadGen's response that keeps ids of addresses."""

  def response(unused_id, address: int, size: int, tokens: int) -> None:
    assert tokens == size // 8, (tokens, size)
    logged.append(list((ctypes.c_int64 * (size // 8)).from_address(address)))

  return response


def _wait_until(condition) -> None:
  for _ in range(6000):  # By count, because a test stops the clock.
    if condition():
      return
    time.sleep(0.01)
  raise AssertionError('waited a minute in vain')


class SystemUnderTestTest(absltest.TestCase):
  def _failure(self, answer) -> str:
    sut = _sut(answer)
    sut.issue([_sample(1)])
    _wait_until(lambda: sut.failure)
    self.assertEqual(sut.counts().done, 0)
    return sut.failure

  def test_answers_every_sample_of_a_loadgen_run(self):
    # Only this test runs LoadGen, because its defaults apply only to the first
    # settings of a process.
    directory = self.create_tempdir().full_path
    conf = os.path.join(directory, 'user.conf')
    run = settings.RunSettings(
      gptj.GPTJ, rounds.OFFLINE, 'v4.0', 40, 40, 1, target_qps=1.0
    )
    with open(conf, 'w', encoding='utf-8') as file:
      file.write(run.user_conf)
    test = settings.load(conf, run.benchmark, run.scenario, run.attributes)
    test.mode = mlperf_loadgen.TestMode.AccuracyOnly
    log = mlperf_loadgen.LogSettings()
    output = mlperf_loadgen.LogOutputSettings()
    output.outdir = directory
    log.log_output = output
    model = _Model()
    sut = sut_lib.SystemUnderTest(model, [1] * 40, 40, concurrency=4)
    library = mlperf_loadgen.ConstructQSL(
      40, 40, lambda indices: None, lambda indices: None
    )
    handle = mlperf_loadgen.ConstructSUT(sut.issue, sut.flush)
    mlperf_loadgen.StartTestWithLogSettings(handle, library, test, log, '')
    mlperf_loadgen.DestroySUT(handle)
    mlperf_loadgen.DestroyQSL(library)
    answers = rouge.read_accuracy_log(
      os.path.join(directory, loadgen_log.ACCURACY_LOG), 'int64'
    )
    self.assertEqual(answers, {n: (n, n + 1) for n in range(40)})
    self.assertEqual(model.most_waiting, 4)
    self.assertIsNone(sut.failure)
    counts = sut.counts()
    self.assertEqual((counts.issued, counts.done), (40, 40))
    self.assertEqual(loadgen_log.read(directory).problems, ())
    times = sut.timeline
    self.assertCountEqual([sample.index for sample in times], range(40))
    for sample in times:
      self.assertEqual(sample.tokens, 2)
      self.assertLessEqual(sample.issued, sample.sent)
      self.assertLessEqual(sample.sent, sample.first_token)
      self.assertLessEqual(sample.first_token, sample.done)

  def _sent(self, sizes: list[int], copy: int, indices: list[int]) -> list[int]:
    """Returns the indices of one query in the order in which they are sent."""
    sent = []
    sut = _sut(
      lambda index, reply: sent.append(index), sizes, copy, len(indices)
    )
    sut.issue([_sample(index) for index in indices])
    _wait_until(lambda: len(sent) == len(indices))
    return sent

  def test_longest_samples_of_a_copy_are_sent_first(self):
    self.assertEqual(self._sent([1, 5, 3], 3, [0, 1, 2]), [1, 2, 0])

  def test_samples_stay_in_their_copy_of_the_set(self):
    # The query has two copies of the set and a part of a third, as LoadGen
    # joins them.
    sent = self._sent([1, 5, 3], 3, [2, 0, 1, 1, 2, 0, 0, 1])
    self.assertEqual(sent, [1, 2, 0, 1, 2, 0, 1, 0])

  def test_a_copy_has_the_samples_that_are_loaded(self):
    sent = self._sent([1, 5, 3, 7], 2, [0, 3, 0, 3])
    self.assertEqual(sent, [3, 0, 3, 0])

  def test_a_sample_alone_is_sent_by_loadgens_own_thread(self):
    threads = []
    sut = _sut(lambda index, reply: threads.append(threading.current_thread()))
    sut.issue([_sample(0)])
    self.assertEqual(threads, [threading.current_thread()])

  def test_a_sample_alone_waits_behind_others(self):
    taken = []

    def take(index, reply):
      taken.append((index, reply, threading.current_thread().name))

    sut = _sut(take, [1] * 4, 4, concurrency=1)
    with mock.patch.object(mlperf_loadgen, 'QuerySamplesComplete'):
      sut.issue([_sample(0), _sample(1)])
      sut.issue([_sample(2)])
      sut.issue([_sample(3)])
      for sent in range(1, 5):
        _wait_until(lambda sent=sent: len(taken) == sent)
        taken[-1][1].done(system.Answer(np.zeros(1, np.int64)))
    self.assertEqual([index for index, _, _ in taken], [0, 1, 2, 3])
    self.assertEqual({name for _, _, name in taken}, {'feeder'})

  def test_the_system_gets_no_more_than_concurrency(self):
    taken = []
    sut = _sut(lambda index, reply: taken.append(reply), [1] * 9, 9, 2)
    with mock.patch.object(mlperf_loadgen, 'QuerySamplesComplete'):
      sut.issue([_sample(index) for index in range(9)])
      _wait_until(lambda: len(taken) == 2)
      time.sleep(0.05)
      self.assertLen(taken, 2)
      taken[0].done(system.Answer(np.zeros(1, np.int64)))
      _wait_until(lambda: len(taken) == 3)
    self.assertEqual(sut.counts().in_flight, 2)

  def test_loadgen_gets_the_bytes_of_the_answer(self):
    logged = []
    with (
      mock.patch.object(
        mlperf_loadgen, 'QuerySampleResponse', _logs_to(logged)
      ),
      mock.patch.object(mlperf_loadgen, 'QuerySamplesComplete'),
    ):
      for ids in ([7, 8], []):
        answer = system.Answer(np.array(ids, np.int64), len(ids))
        sut = _sut(lambda index, reply, answer=answer: reply.done(answer))
        sut.issue([_sample(0)])
        _wait_until(lambda sut=sut: sut.timeline)
    self.assertEqual(logged, [[7, 8], []])

  def test_silence_counts_from_the_issue_or_the_last_answer(self):
    replies = []
    with (
      mock.patch.object(time, 'monotonic', return_value=5.0) as now,
      mock.patch.object(mlperf_loadgen, 'QuerySamplesComplete'),
    ):
      sut = _sut(lambda index, reply: replies.append(reply))
      for issued, count in ((65.0, 1), (965.0, 2)):
        now.return_value = issued
        sut.issue([_sample(0)])
        # Time without unanswered samples does not count as silence.
        self.assertEqual(sut.counts().silence_secs, 0.0)
        now.return_value = issued + 7
        self.assertEqual(sut.counts().silence_secs, 7.0)
        _wait_until(lambda count=count: len(replies) == count)
        replies[-1].done(system.Answer(np.zeros(1, np.int64)))
        self.assertEqual(sut.counts().silence_secs, 0.0)
      self.assertEqual(sut.counts().done, 2)

  def _first_tokens(self, answer) -> tuple[str | None, list[list[int]]]:
    """Returns the failure of a run, and the first tokens that LoadGen got."""
    logged = []

    def response(unused_id, address: int, size: int, tokens: int = 0) -> None:
      if not tokens:
        logged.append(
          list((ctypes.c_int32 * (size // 4)).from_address(address))
        )

    with (
      mock.patch.object(mlperf_loadgen, 'QuerySampleResponse', response),
      mock.patch.object(mlperf_loadgen, 'QuerySamplesComplete'),
      mock.patch.object(mlperf_loadgen, 'FirstTokenComplete'),
    ):
      sut = sut_lib.SystemUnderTest(
        _Function(answer), [1], 1, 1, first_tokens=True
      )
      sut.issue([_sample(0)])
      _wait_until(lambda: sut.timeline or sut.failure)
    return sut.failure, logged

  def test_loadgen_gets_the_first_token(self):
    answer = system.Answer(np.array([7, 8], np.int32), 2)

    def stream(index, reply):
      reply.first_token(7)
      reply.done(answer)

    self.assertEqual(self._first_tokens(stream), (None, [[7]]))

  def test_an_answer_without_its_first_token_ends_the_run(self):
    answer = system.Answer(np.array([7, 8], np.int32), 2)

    def another(index, reply):
      reply.first_token(6)
      reply.done(answer)

    def unknown(index, reply):
      reply.first_token()
      reply.done(answer)

    for function, message in (
      (lambda index, reply: reply.done(answer), 'was not reported'),
      (unknown, 'sample 0 was answered, but .* ENABLE_GENERATE_STREAM=true'),
      (another, r'with \[7, 8\].* first token was reported as 6'),
    ):
      failure, _ = self._first_tokens(function)
      self.assertRegex(failure, message)

  def test_failed_sample_is_reported(self):
    error = RuntimeError('connection refused')
    self.assertEqual(
      self._failure(lambda index, reply: reply.failed(error)),
      'sample 1 failed: connection refused',
    )

  def test_refused_sample_is_reported(self):
    def refuse(index, reply):
      raise RuntimeError(f'no {index}')

    self.assertEqual(self._failure(refuse), 'sample 1 cannot be sent: no 1')


if __name__ == '__main__':
  absltest.main()
