"""Runs a Network SUT on a thread of the test."""

import asyncio
import queue
import threading
from typing import Any, Self

from harness.network import query_server

_PATIENCE_SECS = 300.0


class Sut:
  """A context manager that serves a system.

  Attributes:
    address: The address of the server.
    inputs: The inputs of the system.
    system: The system that answers.
  """

  address: str
  inputs: query_server.Inputs
  system: Any

  def __init__(self, make: query_server.MakeSystem, name: str = 'toy'):
    self._make = make
    self._name = name
    self._started: queue.SimpleQueue[int] = queue.SimpleQueue()
    self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

  def __enter__(self) -> Self:
    self._thread.start()
    port = self._started.get(timeout=_PATIENCE_SECS)
    self.address = f'127.0.0.1:{port}'
    return self

  def __exit__(self, *unused_error) -> None:
    self.stop()

  def stop(self) -> None:
    if self._thread.is_alive():
      self._loop.call_soon_threadsafe(self._stop.set)
      self._thread.join(_PATIENCE_SECS)

  async def _run(self) -> None:
    self._loop = asyncio.get_running_loop()
    self._stop = asyncio.Event()
    await query_server.run(
      self._keep,
      0,
      self._name,
      self._stop,
      lambda name, port: self._started.put(port),
      '127.0.0.1',
    )

  def _keep(self, inputs: query_server.Inputs) -> Any:
    self.inputs = inputs
    self.system = self._make(inputs)
    return self.system
