"""Handles the signals that stop a program."""

import asyncio
import os
import signal

from absl import logging


def first() -> asyncio.Event:
  """Returns an event that SIGTERM or Ctrl-C sets.

  The event may also be set by other code, for example when another process of
  the group stops. Only signals count: the second one ends the process at once.
  """
  stop_signal = asyncio.Event()
  signalled = False

  def on_signal() -> None:
    nonlocal signalled
    if signalled:
      logging.warning('second signal to stop: this process ends at once')
      os._exit(1)
    signalled = True
    stop_signal.set()

  for number in (signal.SIGTERM, signal.SIGINT):
    asyncio.get_running_loop().add_signal_handler(number, on_signal)
  return stop_signal
