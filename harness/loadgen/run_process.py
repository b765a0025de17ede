"""Starts a LoadGen process and follows it to its end."""

import queue
import threading
import time

from harness import errors
from harness.loadgen import run as run_lib
from serve import children
from serve import progress as progress_lib

# A dead server also fails the requests of the run. The end of the server is the
# better explanation, so the process waits this long for it.
_BLAME_SECS = 1.0
_POLL_SECS = 0.2
_EXIT_SECS = 20.0


class RunError(errors.HarnessError):
  """Raised if a LoadGen run ended before all samples were answered."""


def follow(
  group: children.Children,
  child: children.Child,
  label: str,
  progress: progress_lib.Progress,
) -> run_lib.RunStatus:
  """Waits for a run while showing its progress.

  Args:
    group: The processes to watch. If a server ends, the job ends too.
    child: The LoadGen process, started with a pipe and not watched.
    label: The name of the run in progress messages.
    progress: The output for progress messages.

  Returns:
    The last status: all samples are answered and the logs are written.

  Raises:
    RunError: The run failed. The error contains the reason.
    children.ChildError: Another process ended.
  """
  lines: queue.Queue[str | None] = queue.Queue()
  reader = threading.Thread(target=_read, args=(child, lines), daemon=True)
  reader.start()
  status = run_lib.RunStatus()
  with progress.bar(label) as bar:
    while True:
      group.check()
      try:
        line = lines.get(timeout=_POLL_SECS)
      except queue.Empty:
        continue
      if line is None:
        break
      status = run_lib.parse(line) or status
      bar.update(
        status.done,
        status.issued,
        progress_lib.rate_note(status.done, status.issued, status.seconds),
      )
  _check_ending(group, child, label, status)
  return status


def _read(child: children.Child, lines: 'queue.Queue[str | None]') -> None:
  with open(child.log_path, 'a', encoding='utf-8') as log:
    for data in children.output(child):
      line = data.decode('utf-8', 'replace')
      lines.put(line)
      if line.strip() and run_lib.parse(line) is None:
        log.write(line)
  lines.put(None)


def _check_ending(
  group: children.Children,
  child: children.Child,
  label: str,
  status: run_lib.RunStatus,
) -> None:
  child.process.wait(_EXIT_SECS)
  if status.finished and child.process.returncode == 0:
    return
  blame_until = time.monotonic() + _BLAME_SECS
  while time.monotonic() < blame_until:
    group.check()
    time.sleep(_POLL_SECS)
  if status.failure:
    raise RunError(
      f'the {label} failed after {status.done} of {status.issued} samples:'
      f' {status.failure}'
    )
  raise child.error()
