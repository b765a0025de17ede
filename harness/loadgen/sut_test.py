from concurrent import futures
import ctypes
import os
import threading
import time
import types
from unittest import mock

from absl.testing import absltest
import mlperf_loadgen

from harness.loadgen import loadgen_log
from harness.loadgen import settings
from harness.loadgen import sut as sut_lib
from saxml_ext.evaluation import rouge


class _Model:
  """Answers prompt "7" with "7,8", and counts who waits at the same time."""

  def __init__(self):
    self._pool = futures.ThreadPoolExecutor(16)
    self._lock = threading.Lock()
    self.waiting = self.most_waiting = 0

  def generate(self, prompt: str) -> futures.Future:
    with self._lock:
      self.waiting += 1
      self.most_waiting = max(self.waiting, self.most_waiting)
    return self._pool.submit(self._answer, prompt)

  def _answer(self, prompt: str) -> sut_lib.Answers:
    time.sleep(0.01)
    with self._lock:
      self.waiting -= 1
    return [(f'{prompt},{int(prompt) + 1}', -1.0), ('0', -2.0)]


def _sample(index: int):
  return types.SimpleNamespace(id=100 + index, index=index)


def _future(result=None, error=None) -> futures.Future:
  future = futures.Future()
  if error:
    future.set_exception(error)
  else:
    future.set_result(result)
  return future


def _logs_to(logged: list[list[int]]):
  """Stands in for LoadGen's response; keeps the ids at the given address."""

  def response(unused_id, address: int, size: int) -> None:
    logged.append(list((ctypes.c_int64 * (size // 8)).from_address(address)))

  return response


def _wait_until(condition) -> None:
  end = time.monotonic() + 60
  while not condition():
    if time.monotonic() > end:
      raise AssertionError('waited 60 s in vain')
    time.sleep(0.01)


class SystemUnderTestTest(absltest.TestCase):
  def _failure(self, generate) -> str:
    sut = sut_lib.SystemUnderTest(generate, ['5', '6'], concurrency=1)
    sut.issue([_sample(1)])
    _wait_until(lambda: sut.failure)
    self.assertEqual(sut.counts().done, 0)
    return sut.failure

  def test_answers_every_sample_of_a_loadgen_run(self):
    # The one real run here: LoadGen's defaults reach only the first settings
    # of a process.
    directory = self.create_tempdir().full_path
    conf = os.path.join(directory, 'user.conf')
    with open(conf, 'w', encoding='utf-8') as file:
      file.write(settings.RunSettings('Offline', 40, 1, 1.0).user_conf)
    test = mlperf_loadgen.TestSettings()
    test.FromConfig(conf, settings.MODEL, 'Offline')
    test.scenario = mlperf_loadgen.TestScenario.Offline
    test.mode = mlperf_loadgen.TestMode.AccuracyOnly
    log = mlperf_loadgen.LogSettings()
    output = mlperf_loadgen.LogOutputSettings()
    output.outdir = directory
    log.log_output = output
    model = _Model()
    sut = sut_lib.SystemUnderTest(
      model.generate, [str(n) for n in range(40)], concurrency=4
    )
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

  def _sent(self, prompts: list[str], indices: list[int]) -> list[str]:
    """Prompts in the order in which those of one query are sent."""
    sent = []

    def generate(prompt: str) -> futures.Future:
      sent.append(prompt)
      return futures.Future()

    sut = sut_lib.SystemUnderTest(generate, prompts, len(indices))
    sut.issue([_sample(index) for index in indices])
    _wait_until(lambda: len(sent) == len(indices))
    return sent

  def test_longest_prompts_of_a_copy_are_sent_first(self):
    prompts = ['5', '6,7,8', '9,1']
    self.assertEqual(self._sent(prompts, [0, 1, 2]), ['6,7,8', '9,1', '5'])

  def test_samples_stay_in_their_copy_of_the_set(self):
    prompts = ['5', '6,7,8', '9,1']
    # Two copies of the set and a part of a third, as LoadGen joins them.
    sent = self._sent(prompts, [2, 0, 1, 1, 2, 0, 0, 1])
    longest_first = ['6,7,8', '9,1', '5']
    self.assertEqual(sent, [*longest_first, *longest_first, '6,7,8', '5'])

  def test_answers_end_before_the_first_end_id(self):
    for text, expected in (
      ('7,8', [7, 8]),
      ('7,8,50256', [7, 8]),
      ('7,8,50256,50256', [7, 8]),
      ('7,50256,8', [7]),
      ('50256', []),
      ('', []),
    ):
      logged = []
      with (
        mock.patch.object(
          mlperf_loadgen, 'QuerySampleResponse', _logs_to(logged)
        ),
        mock.patch.object(mlperf_loadgen, 'QuerySamplesComplete'),
      ):
        sut = sut_lib.SystemUnderTest(
          lambda prompt, text=text: _future([(text, 0.0)]), ['5'], 1, {50256}
        )
        sut.issue([_sample(0)])
        _wait_until(lambda: sut.counts().done == 1 and logged)
      self.assertEqual(logged, [expected], text)

  def test_failed_call_is_told(self):
    error = RuntimeError('connection refused')
    self.assertEqual(
      self._failure(lambda prompt: _future(error=error)),
      'sample 1 failed: connection refused',
    )

  def test_refused_call_is_told(self):
    def refuse(prompt):
      raise RuntimeError(f'no {prompt}')

    self.assertEqual(self._failure(refuse), 'sample 1 could not be sent: no 6')

  def test_text_instead_of_ids_is_told(self):
    self.assertRegex(
      self._failure(lambda prompt: _future([('Some words', 0.0)])),
      "returned 'Some words', not comma-separated.*tokenized serving params",
    )

  def test_no_answer_is_told(self):
    self.assertRegex(
      self._failure(lambda prompt: _future([])), 'returned no answer'
    )

  def test_silence_is_measured_from_the_issue(self):
    clock = mock.patch.object(sut_lib.SystemUnderTest, '_now', return_value=5.0)
    with clock as now:
      sut = sut_lib.SystemUnderTest(
        lambda prompt: futures.Future(), ['5'], concurrency=1
      )
      now.return_value = 65.0
      sut.issue([_sample(0)])
      self.assertEqual(sut.counts().silence_secs, 0.0)
      now.return_value = 72.0
      counts = sut.counts()
    self.assertEqual(counts.silence_secs, 7.0)
    self.assertEqual((counts.issued, counts.done), (1, 0))


if __name__ == '__main__':
  absltest.main()
