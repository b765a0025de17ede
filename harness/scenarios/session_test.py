import collections
import io
import itertools
import os
import shutil
import sys
from unittest import mock

from absl.testing import absltest

from harness import errors
from harness.benchmarks import llama
from harness.loadgen import run as run_lib
from harness.rules import rounds
from harness.scenarios import session
from harness.systems import launch
from serve import children
from serve import programs
from serve import progress as progress_lib

_SEND = (
  'import sys, time; from harness.loadgen import run as run_lib;'
  ' send = lambda *a, **k: run_lib.send(run_lib.RunStatus(*a, **k)); '
)
_Usage = collections.namedtuple('_Usage', 'total used free')


def _command(code: str) -> programs.Command:
  env = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
  return programs.Command((sys.executable, '-c', code), env)


class StreamsTest(absltest.TestCase):
  def test_a_model_that_does_not_stream_is_refused(self):
    workspace = launch.Workspace(*[mock.Mock()] * 4)
    for streams, scenario, refused in (
      (False, rounds.SERVER, True),
      (False, rounds.OFFLINE, False),
      (True, rounds.INTERACTIVE, False),
      (None, rounds.INTERACTIVE, False),
    ):
      made = session.Session(
        workspace, launch.Started('p', None, exact=False, streams=streams)
      )
      if not refused:
        made.check_streams(llama.LLAMA, scenario)
        continue
      with self.assertRaisesRegex(
        ValueError, 'Server of llama3_1-8b .* ENABLE_GENERATE_STREAM=true'
      ):
        made.check_streams(llama.LLAMA, scenario)


class RunProcessTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    directory = self.create_tempdir().full_path
    self._log = os.path.join(directory, 'run.log')
    self._server_log = os.path.join(directory, 'server.log')

  def _follow(self, code: str, server: str | None = None, shown=None):
    with children.Children() as group:
      if server is not None:
        group.start('model server', _command(server), self._server_log)
      child = group.start_piped('run', _command(_SEND + code), self._log)
      return session.follow(
        group,
        child,
        'accuracy run',
        progress_lib.Progress(shown or io.StringIO(), interval_secs=0.0),
      )

  def test_returns_the_last_status_and_logs_the_chatter(self):
    status = self._follow(
      "send(8, 3, 1.5); print('LoadGen says', end='');"
      ' send(8, 8, 2.0, finished=True)'
    )
    self.assertEqual(status, run_lib.RunStatus(8, 8, 2.0, True))
    with open(self._log, encoding='utf-8') as file:
      self.assertEqual(file.read().strip(), 'LoadGen says')

  def test_the_warm_up_and_the_preparation_are_shown(self):
    shown = io.StringIO()
    self._follow(
      "send(9, 3, warm_up='warm-up'); send(9, 9, warm_up='pause'); send();"
      ' send(8, 8, 2.0, finished=True)',
      shown=shown,
    )
    lines = [line.partition('] ')[2] for line in shown.getvalue().splitlines()]
    self.assertEqual(
      [line for line, _ in itertools.groupby(lines)],
      [
        'accuracy run: preparing',
        'accuracy run: 3/9 warm-up',
        'accuracy run: 9/9 pause',
        'accuracy run: preparing',
        'accuracy run: 8/8 4.0 samples/s, 0 s left',
      ],
    )

  def test_tells_why_a_run_was_given_up(self):
    with self.assertRaisesRegex(
      session.RunError, 'accuracy run failed after 3 of 8.*: lost it'
    ):
      self._follow("send(8, 3, failure='lost it'); sys.exit(1)")

  def test_tells_of_a_crash(self):
    with self.assertRaisesRegex(
      children.ChildError, 'exit code 1(.|\n)*ValueError: odd'
    ):
      self._follow("send(8, 3); raise ValueError('odd')")

  def test_a_quiet_end_is_no_success(self):
    with self.assertRaisesRegex(children.ChildError, 'exit code 0'):
      self._follow('send(8, 3)')

  def test_an_error_after_the_last_answer_is_no_success(self):
    with self.assertRaisesRegex(children.ChildError, 'exit code 3'):
      self._follow('send(8, 8, 2.0, finished=True); sys.exit(3)')

  def test_a_dead_server_ends_the_run(self):
    with self.assertRaisesRegex(children.ChildError, 'the model server'):
      self._follow('send(8, 3); time.sleep(600)', server='')

  def test_a_dead_server_is_blamed_for_the_failed_run(self):
    # The server ends immediately after the run has failed.
    failed = os.path.join(os.path.dirname(self._log), 'failed')
    server = (
      'import os, time\n'
      f'while not os.path.exists({failed!r}):\n'
      '  time.sleep(0.05)\n'
    )
    with (
      mock.patch.object(session, '_BLAME_SECS', 100.0),
      self.assertRaisesRegex(children.ChildError, 'the model server'),
    ):
      self._follow(
        "send(8, 3, failure='unavailable');"
        f" open({failed!r}, 'w').close(); sys.exit(1)",
        server=server,
      )


class DiskTest(absltest.TestCase):
  def _end(self, free: int, error: Exception | None = None) -> None:
    usage = _Usage(10**9, 10**9 - free, free)
    with (
      mock.patch.object(shutil, 'disk_usage', return_value=usage),
      session.disk_errors('/results'),
    ):
      if error:
        raise error

  def test_a_full_disk_is_blamed(self):
    for error in (
      ValueError('cut off'),
      errors.HarnessError('exit code 1'),
      None,
    ):
      with self.assertRaisesRegex(
        session.DiskError, 'disk of /results is full: 17 bytes .* --results_dir'
      ):
        self._end(17, error)

  def test_other_failures_stay_what_they_are(self):
    with self.assertRaisesRegex(ValueError, 'cut off'):
      self._end(10**8, ValueError('cut off'))
    self._end(10**8)
    with session.disk_errors(self.create_tempdir().full_path):
      pass


if __name__ == '__main__':
  absltest.main()
