"""Tests that each end of a group's stream detects the loss of the other."""

from concurrent import futures
import ctypes
import os
import signal
import subprocess
import sys
import threading

from absl.testing import absltest
import grpc

from saxml_ext.groups import follower_streams

_TIMEOUT = 300
# A busy machine may take seconds to answer a ping.
_SILENCE = 4.0


class StreamsTest(absltest.TestCase):
  def _serve(self) -> tuple[int, threading.Event]:
    """Starts a leader with one stream.

    Returns:
      The port, and the event that is set when the stream has ended.
    """
    ended = threading.Event()

    def follow(requests, context):
      context.add_callback(ended.set)
      yield b'hello'
      ended.wait()

    handler = grpc.method_handlers_generic_handler(
      follower_streams.SERVICE,
      {follower_streams.METHOD: grpc.stream_stream_rpc_method_handler(follow)},
    )
    server = grpc.server(
      futures.ThreadPoolExecutor(4),
      handlers=(handler,),
      options=follower_streams.server_options(_SILENCE),
    )
    port = server.add_insecure_port('127.0.0.1:0')
    server.start()
    self.addCleanup(lambda: server.stop(0).wait())
    return port, ended

  def _follow(self, port: int, more: str) -> subprocess.Popen[str]:
    """Starts a follower in its own process, which then runs more code."""
    process = subprocess.Popen(
      [
        sys.executable,
        '-c',
        _FOLLOWER.format(port=port, silence=_SILENCE, more=more),
      ],
      stdout=subprocess.PIPE,
      text=True,
      env={**os.environ, 'PYTHONPATH': os.pathsep.join(filter(None, sys.path))},
    )
    self.addCleanup(process.communicate)
    self.addCleanup(process.kill)
    self.assertEqual(process.stdout.readline(), 'hello\n')
    return process

  def test_stopped_process_is_noticed(self):
    port, ended = self._serve()
    process = self._follow(port, 'time.sleep(1000)')
    self.assertFalse(ended.wait(2 * _SILENCE))
    process.send_signal(signal.SIGSTOP)
    self.assertTrue(ended.wait(_TIMEOUT))

  def test_processes_that_compute_without_a_pause_are_alive(self):
    port, ended = self._serve()
    hold = f'ctypes.PyDLL(None).usleep({round(2e6 * _SILENCE)})'
    process = self._follow(port, f'{hold}; print("done", flush=True)')
    ctypes.PyDLL(None).usleep(round(2e6 * _SILENCE))  # So does the leader.
    self.assertEqual(process.stdout.readline(), 'done\n')
    self.assertFalse(ended.is_set())
    process.kill()
    self.assertTrue(ended.wait(_TIMEOUT))


_FOLLOWER = """
import ctypes, threading, time
from saxml_ext.groups import follower_streams
channel = follower_streams.channel('127.0.0.1:{port}', {silence})
path = f'/{{follower_streams.SERVICE}}/{{follower_streams.METHOD}}'
call = channel.stream_stream(path)(
  iter(threading.Event().wait, None))
print(next(call).decode(), flush=True)
{more}
"""


if __name__ == '__main__':
  absltest.main()
