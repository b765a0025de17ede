"""Records the functions of the repository that a Python process executes.

`files_executed` installs this file as the `usercustomize` module of the
processes that it starts. Therefore this file must not import anything from the
repository. Code that runs while a module is imported does not count.
"""

import os
import signal
import sys
import threading

# OUT is the variable with the directory for the records, one file per process.
OUT = 'FLOW_OUT'
PACKAGES = ('saxml_ext', 'harness', 'serve', 'converters')
_GENERATED = ('_pb2.py', '_pb2_grpc.py')

_window = 0
_seen = set()


def _in_import(frame):
  while frame is not None:
    code = frame.f_code
    if code.co_name == '<module>' and frame.f_globals['__name__'] != '__main__':
      return True
    frame = frame.f_back
  return False


def _profile(frame, event, unused_argument):
  code = frame.f_code
  path = code.co_filename
  key = path, code.co_firstlineno
  if event != 'call' or key in _seen:
    return
  parts = path.split('/')
  indices = [i for i, part in enumerate(parts) if part in PACKAGES]
  if not indices or 'site-packages' in parts or path.endswith(_GENERATED):
    _seen.add(key)
    return
  if _in_import(frame) or code.co_name == '<module>':
    return
  _seen.add(key)
  file = '/'.join(parts[indices[-1] :])
  with open(_log, 'a', encoding='utf-8') as log:
    log.write(f'{_window}\t{file}\t{code.co_qualname}\n')


def next_window(*unused_signal):
  """Starts the next window, in which every function counts again."""
  global _window
  _window += 1
  _seen.clear()


def start(directory):
  """Records this process; SIGUSR2 starts the next window."""
  global _log
  _log = os.path.join(directory, str(os.getpid()))
  # Bazel's launcher is also a Python, and has the same process id.
  with open(_log, 'w', encoding='utf-8') as file:
    file.write(f'{sys.orig_argv[1]}\n')
  signal.signal(signal.SIGUSR2, next_window)
  threading.setprofile(_profile)
  sys.setprofile(_profile)


if __name__ == 'usercustomize' and OUT in os.environ:
  start(os.environ[OUT])
