"""Tests a cell of two model servers, one of which is stopped under traffic.

The other server also runs the admin server in its own process. No request is
lost in any of three cases: one of them unloads the model, one of them ends, or
the remaining one loads another checkpoint.
"""

import pathlib
import signal
import subprocess
import tempfile
import threading
import time
from typing import TextIO

from absl.testing import absltest

from saxml_ext.client import sax
from saxml_ext.common import cell
from saxml_ext.common.testing import modules
from saxml_ext.protobuf import admin_pb2
from saxml_ext.server.testing import small_model

_CELL = '/sax/test'
_MODEL = '/sax/test/small'
_TIMEOUT = 300
_CLIENTS = 4


class _Traffic:
  """Clients of the cell that send a new request after each answer."""

  def __init__(self):
    self.answers = 0
    self.errors: list[Exception] = []
    self._changed = threading.Condition()
    self._stopped = False
    self._threads = [
      threading.Thread(target=self._run, args=(f'{i + 1},{i + 5}',))
      for i in range(_CLIENTS)
    ]

  def __enter__(self) -> '_Traffic':
    for thread in self._threads:
      thread.start()
    return self

  def __exit__(self, *exc_info) -> None:
    self._stopped = True
    for thread in self._threads:
      thread.join(_TIMEOUT)

  def wait_for(self, answers: int) -> None:
    """Waits for this many more answers, or the first error."""
    with self._changed:
      target = self.answers + answers
      self._changed.wait_for(
        lambda: self.answers >= target or self.errors, _TIMEOUT
      )

  def _run(self, prompt: str) -> None:
    # The requests that the stopping server rejects go to the other one.
    model = sax.Model(_MODEL).LM()
    options = sax.ModelOptions()
    options.SetTimeout(_TIMEOUT)
    while not self._stopped:
      try:
        model.Generate(prompt, options)
      except sax.SaxError as e:
        self.errors.append(e)
      with self._changed:
        self.answers += 1
        self._changed.notify_all()


class DrainTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.dir = self.enterContext(tempfile.TemporaryDirectory())
    cell.write_config(
      self.dir,
      _CELL,
      admin_pb2.Config(fs_root=self.dir + '/fs', admin_acl='acl/all'),
    )
    sax.SetRoot(self.dir)

  def _start(self, *flags: str) -> tuple[subprocess.Popen[str], TextIO]:
    """Starts a model server; returns its process and its log."""
    log = open(tempfile.mkstemp(dir=self.dir)[1], 'w', encoding='utf-8')
    self.addCleanup(log.close)
    process = modules.start(
      self,
      'saxml_ext.server.testing.small_server',
      '--port=0',
      f'--jax_cache_dir={self.dir}/cache',
      *flags,
      stderr=log,
      SAX_ROOT=self.dir,
      SAX_CELL=_CELL,
    )
    return process, log

  def test_no_request_is_lost(self):
    stays, stays_log = self._start('--admin_port=0')
    self.assertRegex(
      stays.stdout.readline(), r'^Admin server is serving at 127.0.0.1:\d+$'
    )
    goes, goes_log = self._start()
    path = small_model.write(self.dir + '/first')
    while sum(stat.num_replicas for stat in sax.Stats(_CELL)) < 2:
      time.sleep(0.1)
    sax.Publish(_MODEL, small_model.MODEL_PATH, path, 2)
    sax.WaitForReady(_MODEL, 2)

    with _Traffic() as traffic:
      traffic.wait_for(20)
      # One of the two unloads the model, and loads it again.
      sax.UpdateReplicas(_MODEL, 1)
      while sax.List(_MODEL)[2] > 1:
        time.sleep(0.05)
      traffic.wait_for(20)
      sax.UpdateReplicas(_MODEL, 2)
      sax.WaitForReady(_MODEL, 2)
      traffic.wait_for(20)
      goes.send_signal(signal.SIGTERM)
      self.assertEqual(goes.wait(_TIMEOUT), 0, _text(goes_log))
      traffic.wait_for(20)
      sax.UpdateCheckpoint(
        _MODEL, small_model.write(self.dir + '/second', seed=1)
      )
      traffic.wait_for(20)
      while f'serves {self.dir}/second' not in _text(stays_log):
        traffic.wait_for(1)
      traffic.wait_for(20)
      # If a checkpoint cannot be loaded, the model stays as it is.
      sax.UpdateCheckpoint(_MODEL, '/no/such/checkpoint')
      while 'cannot be loaded' not in _text(stays_log):
        traffic.wait_for(1)
      for _ in range(8):  # The admin server notices it, and does nothing.
        traffic.wait_for(5)
        time.sleep(0.5)
    self.assertEmpty(traffic.errors)

    stays.send_signal(signal.SIGTERM)
    self.assertEqual(stays.wait(_TIMEOUT), 0)
    log = _text(stays_log)
    # Guides to Sax refer to this line of the log.
    self.assertRegex(log, r'Loaded config: fs_root: ".*/fs"')
    self.assertRegex(log, r'SetAddr \S*/location.proto "127.0.0.1:\d+"')
    self.assertIn('loading completed.', log)
    self.assertNotIn('Traceback', log)
    self.assertNotIn('Traceback', _text(goes_log))


def _text(log: TextIO) -> str:
  # The file is opened again, because a read would move the program's write
  # position.
  return pathlib.Path(log.name).read_text(encoding='utf-8')


if __name__ == '__main__':
  absltest.main()
