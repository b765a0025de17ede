"""How a program is told to stop."""

import asyncio
import os
import signal

from absl import logging


def first() -> asyncio.Event:
  """An event set by SIGTERM or Ctrl-C; the second one ends the process."""
  told = asyncio.Event()

  def on_signal() -> None:
    if told.is_set():
      logging.warning('told twice to stop; ending at once')
      os._exit(1)
    told.set()

  for number in (signal.SIGTERM, signal.SIGINT):
    asyncio.get_running_loop().add_signal_handler(number, on_signal)
  return told
