"""Counts what XLA compiles.

JAX compiles whenever it meets a function, or an operation outside of one, with
new shapes. A server that is given its programs is meant to compile nothing, and
only JAX's own events tell whether it does.
"""

from collections.abc import Iterator
import contextlib

from jax import monitoring

_EVENT = '/jax/core/compile/backend_compile_duration'


class Compilations:
  """What was compiled, by JAX's name of the function, in order."""

  def __init__(self) -> None:
    """Counts from now on, see `counting`."""
    self.names: list[str] = []

  def __len__(self) -> int:
    return len(self.names)

  def on_event(self, event: str, duration: float, **more: object) -> None:
    """Called by JAX at the end of whatever took a time."""
    del duration
    if event == _EVENT:
      self.names.append(str(more.get('fun_name')))


@contextlib.contextmanager
def counting() -> Iterator[Compilations]:
  """Counts compilations of this process, on all threads, while it is open."""
  found = Compilations()
  monitoring.register_event_duration_secs_listener(found.on_event)
  try:
    yield found
  finally:
    monitoring.unregister_event_duration_listener(found.on_event)
