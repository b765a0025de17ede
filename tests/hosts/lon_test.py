"""Tests LoadGen on one host with the system under test on two others."""

import os
import re
import subprocess
import sys
import time

from absl.testing import absltest

from harness.benchmarks import gptj
from harness.loadgen import loadgen_log
from harness.loadgen import run as run_lib
from harness.loadgen import settings
from harness.rules import rounds
from saxml_ext.evaluation import rouge
from serve import children
from serve import programs
from tests.hosts import network as network_lib

_TOY = 'harness/network/testing/toy_sut'
_PORT = 8000
_SAMPLES = 40
_WAIT_SECS = 120.0
_POLL_SECS = 0.2
# This is longer than the test. A run that is cut off must end by itself.
_SILENCE_SECS = 900

_obstacle = ''


class LonTest(absltest.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    if _obstacle:
      return  # Each test is skipped, which .ci/run counts.
    cls.net = network_lib.Network()
    cls.lon, cls.a, cls.b = map(cls.net.add_host, ('lon', 'a', 'b'))

  def setUp(self):
    super().setUp()
    if _obstacle:
      self.skipTest(_obstacle)
    self.dir = self.create_tempdir().full_path
    self.timeline = os.path.join(self.dir, loadgen_log.TIMELINE)
    self.group = self.enterContext(children.Children())
    for host in (self.a, self.b):
      log = self.start_on(host)
      self.wait_for(lambda log=log: 'is ready' in log())
      # The other test may have restored the network just before.
      self.wait_for(lambda host=host: self.reaches(host))

  def start_on(self, host):
    """Starts the system on a host; returns a function that reads its log."""
    path = os.path.join(self.dir, f'{host.name}.log')
    self.group.start(
      f'system on {host.name}',
      self.command(host, {'network': 'sut', 'port': _PORT, 'node': host.name}),
      path,
    )

    def read() -> str:
      with open(path, encoding='utf-8') as file:
        return file.read()

    return read

  def reaches(self, host):
    """Returns True if LoadGen's host can connect to the system on a host."""
    connect = (
      'import socket;'
      f'socket.create_connection(({host.address!r}, {_PORT}), 5).close()'
    )
    argv = self.lon.argv([sys.executable, '-c', connect])
    return not subprocess.run(argv, stderr=subprocess.DEVNULL).returncode

  def command(self, host, flags):
    command = programs.command(_TOY, flags)
    return programs.Command(host.argv(command.argv), command.env)

  def wait_for(self, condition):
    end = time.monotonic() + _WAIT_SECS
    while not condition():
      self.group.check()
      self.assertLess(time.monotonic(), end)
      time.sleep(_POLL_SECS)

  def start_run(self, mode, scenario, **load):
    """Starts LoadGen on its host."""
    run = settings.RunSettings(
      gptj.GPTJ, scenario, 'v4.0', _SAMPLES, _SAMPLES, **load
    )
    conf = os.path.join(self.dir, 'user.conf')
    with open(conf, 'w', encoding='utf-8') as file:
      file.write(run.user_conf)
    addresses = [f'{host.address}:{_PORT}' for host in (self.a, self.b)]
    command = self.command(
      self.lon,
      {
        'network': 'lon',
        'sut_server': ','.join(addresses),
        'mode': mode,
        'scenario': scenario,
        'user_conf': conf,
        'output_dir': self.dir,
        'timeline': self.timeline,
        'concurrency': 8,
        'silence_secs': _SILENCE_SECS,
      },
    )
    process = self.enterContext(
      subprocess.Popen(
        command.argv, env=command.env, stdout=subprocess.PIPE, text=True
      )
    )
    self.addCleanup(process.kill)
    return process

  def statuses(self, process):
    for line in process.stdout:
      if status := run_lib.parse(line):
        yield status

  def test_run_over_the_network_is_valid(self):
    process = self.start_run(
      'accuracy', rounds.OFFLINE, min_duration_ms=1, target_qps=1.0
    )
    *_, last = self.statuses(process)
    self.assertEqual(process.wait(_WAIT_SECS), 0, last.failure)
    self.assertEqual((last.done, last.finished), (_SAMPLES, True))
    answers = rouge.read_accuracy_log(
      os.path.join(self.dir, loadgen_log.ACCURACY_LOG), 'int64'
    )
    self.assertEqual(
      answers, {n: tuple(range(n, -1, -1)) for n in range(_SAMPLES)}
    )
    name = loadgen_log.read(self.dir).values['sut_name']
    self.assertRegex(
      str(name), rf'^Network SUT: a on \S+:{_PORT}, b on \S+:{_PORT}$'
    )

  def test_a_node_that_loses_the_network_ends_the_run(self):
    process = self.start_run(
      'performance',
      rounds.SERVER,
      min_duration_ms=600_000,
      target_qps=20.0,
      target_latency_ms=1000.0,
    )
    cut = False
    for status in self.statuses(process):
      if status.done > 20 and not cut:
        self.net.cut(self.b)
        self.addCleanup(self.net.mend, self.b)
        cut = True
    self.assertEqual(process.wait(_WAIT_SECS), 1)
    self.assertRegex(
      status.failure,
      rf'SUT at {re.escape(self.b.address)}:{_PORT} disconnected with \d+'
      ' samples unanswered',
    )
    # The earlier answers of both systems are kept.
    self.assertGreater(len(loadgen_log.read_timeline(self.timeline)), 20)


if __name__ == '__main__':
  _obstacle = network_lib.enter()
  absltest.main()
