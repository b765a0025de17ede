from concurrent import futures
import os
import threading
import time
import types

from absl.testing import absltest
import mlperf_loadgen

from harness import loadgen_log
from harness import settings
from harness import sut as sut_lib
from saxml_ext.common import rouge


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


class SystemUnderTestTest(absltest.TestCase):

  def _failure(self, generate) -> str:
    sut = sut_lib.SystemUnderTest(generate, ['5', '6'], concurrency=1)
    sut.issue([_sample(1)])
    end = time.monotonic() + 10
    while not sut.failure and time.monotonic() < end:
      time.sleep(0.01)
    self.assertEqual(sut.counts().done, 0)
    return sut.failure or ''

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

  def test_longest_prompts_of_a_query_are_sent_first(self):
    sent, never = [], futures.Future()

    def generate(prompt: str) -> futures.Future:
      sent.append(prompt)
      return never

    sut = sut_lib.SystemUnderTest(generate, ['5', '6,7,8', '9,1'], 3)
    sut.issue([_sample(0), _sample(1), _sample(2)])
    end = time.monotonic() + 10
    while len(sent) < 3 and time.monotonic() < end:
      time.sleep(0.01)
    self.assertEqual(sent, ['6,7,8', '9,1', '5'])

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
    sut = sut_lib.SystemUnderTest(
        lambda prompt: futures.Future(), ['5'], concurrency=1
    )
    time.sleep(0.1)
    sut.issue([_sample(0)])
    self.assertLess(sut.counts().silence_secs, 0.1)
    time.sleep(0.1)
    counts = sut.counts()
    self.assertGreaterEqual(counts.silence_secs, 0.1)
    self.assertEqual((counts.issued, counts.done), (1, 0))


if __name__ == '__main__':
  absltest.main()
