"""Runs the templates of checkpoints in a few processes with limits.

A process that exceeds a limit is killed, and the next request starts another
one. Callers block, so they must not be on the event loop.
"""

from collections.abc import Mapping
import os
import queue
import socket
import subprocess
import sys
from typing import Any

from saxml_ext.http.protocol import template_worker

# The time to render a template and to load it, in seconds, and the memory that
# it may use. These are far above what real templates need: about 1 ms, 20 ms and
# 1 MB.
_RENDER_SECS, _LOAD_SECS = 1.0, 5.0
_MEMORY_BYTES = 64 * 2**20
_START_SECS = 30.0
_WAIT_SECS = 5.0
_MOST_PROCESSES = 3
# The largest answer; a character takes at most 12 bytes.
_MOST_ANSWER_BYTES = 16 * template_worker.MOST_CHARACTERS
_KEPT = ('LD_LIBRARY_PATH', 'TZ')
# This template has no text; loading it waits for the start of a process.
_NOTHING = {'key': 0, 'sources': {}, 'path': '', 'tokens': {}, 'reserved': []}


class LimitError(Exception):
  """An error: a template exceeded a limit, which the message names."""


class BusyError(Exception):
  """An error: no process could be used in time."""


class _Worker:
  """A process, which is started when it is needed."""

  def __init__(self) -> None:
    self._process: subprocess.Popen[bytes] | None = None
    self._loaded: set[int] = set()

  def ask(
    self, sources: Mapping[str, Any], request: Mapping[str, Any] | None
  ) -> dict[str, Any]:
    """Loads a template if necessary; returns the answer to a request."""
    if self._process is None:
      self._start()
    key = sources['key']
    answer: dict[str, Any] = {}
    secs = _RENDER_SECS if request else _LOAD_SECS
    try:
      if key not in self._loaded:
        answer = self._call(sources, secs)
        if 'error' not in answer:
          self._loaded.add(key)
      if request is None or 'error' in answer:
        return answer
      answer = self._call({**request, 'key': key}, secs)
    except TimeoutError as e:
      raise LimitError(f'takes more than {secs:g} s') from e
    except (EOFError, OSError) as e:
      raise LimitError(
        f'needs more than {_MEMORY_BYTES >> 20} MiB of memory'
      ) from e
    if 'limit' in answer:
      raise LimitError(answer['limit'])
    return answer

  def _start(self) -> None:
    ours, theirs = socket.socketpair()
    path = os.pathsep.join(filter(None, sys.path))
    # Templates must not see the secrets in other variables.
    env = {k: os.environ[k] for k in _KEPT if k in os.environ}
    with theirs:
      self._process = subprocess.Popen(
        [
          *(sys.executable, '-P', '-S', '-m', template_worker.__name__),
          *(str(_MEMORY_BYTES), str(2 * _LOAD_SECS)),
        ],
        stdin=theirs.fileno(),
        stdout=subprocess.DEVNULL,
        env=env | {'PYTHONPATH': path},
      )
    self._socket, self._stream = ours, ours.makefile('rwb')
    try:
      self._call(_NOTHING, _START_SECS)
    except (EOFError, OSError) as e:
      raise BusyError('the process for chat templates did not start') from e

  def _call(self, request: Mapping[str, Any], secs: float) -> dict[str, Any]:
    self._socket.settimeout(secs)
    template_worker.write(self._stream, request)
    return template_worker.read(self._stream, _MOST_ANSWER_BYTES)

  def end(self) -> None:
    """Kills the process."""
    if self._process:
      self._process.kill()
      self._process.wait()
      self._socket.close()
      self._process = None
      self._loaded.clear()


# The process that was used last is the next, so that few processes start.
_free: queue.LifoQueue[_Worker] = queue.LifoQueue()
for _ in range(_MOST_PROCESSES):
  _free.put(_Worker())


def ask(
  sources: Mapping[str, Any], request: Mapping[str, Any] | None = None
) -> dict[str, Any]:
  """Returns the answer of a process to a request; see `template_worker`.

  Args:
    sources: The request that loads the template; `key` is its number.
    request: The request that renders it; None only loads it.

  Raises:
    LimitError: The template exceeded a limit. Its process is gone.
    BusyError: All processes are busy, or none starts.
    ValueError, RecursionError: The request cannot be encoded as JSON.
  """
  try:
    worker = _free.get(timeout=_WAIT_SECS)
  except queue.Empty as e:
    raise BusyError('all processes for chat templates are busy') from e
  try:
    return worker.ask(sources, request)
  except BaseException:
    worker.end()
    raise
  finally:
    _free.put(worker)
