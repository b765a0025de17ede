"""How a program is told to stop."""

import asyncio
import os
import signal

from absl import logging


def first() -> asyncio.Event:
  """An event set by SIGTERM or Ctrl-C; the second one ends the process.

  Others may set the event too, which is no signal: where several processes
  stop together, they tell each other, and are all sent a signal besides.
  """
  told = asyncio.Event()
  signalled = False

  def on_signal() -> None:
    nonlocal signalled
    if signalled:
      logging.warning('told twice to stop; ending at once')
      os._exit(1)
    signalled = True
    told.set()

  for number in (signal.SIGTERM, signal.SIGINT):
    asyncio.get_running_loop().add_signal_handler(number, on_signal)
  return told
