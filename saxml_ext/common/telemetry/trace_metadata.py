"""Metadata that goes out with every call of the client.

A variable of the context, so that whoever calls on somebody's behalf (a
gateway) says so once, and the client adds the request's id and trace to it.
"""

from collections.abc import Iterator
import contextlib
import contextvars
from typing import TypeAlias

from saxml_ext.common.telemetry import tracing

Metadata: TypeAlias = tuple[tuple[str, str], ...]

OUTGOING: contextvars.ContextVar[Metadata] = contextvars.ContextVar(
  'outgoing', default=()
)


@contextlib.contextmanager
def call(name: str, model_id: str) -> Iterator[None]:
  """Names the calls of its body alike, and makes a span of them.

  Args:
    name: of the span, "lm.generate".
    model_id: that it is about.
  """
  with named(name, model_id) as added, sending(added):
    yield


def named(
  name: str, model_id: str
) -> contextlib.AbstractContextManager[Metadata]:
  """As `call`, for a body that may end in another context: it yields, say.

  Returns:
    A context manager that gives what the calls are to be sent with; `sending`
    does that, for a part of the body that does not yield.
  """
  return tracing.client_call(name, {'sax.model': model_id}, OUTGOING.get())


@contextlib.contextmanager
def sending(added: Metadata) -> Iterator[None]:
  """Sends so much more with the calls of its body."""
  token = OUTGOING.set((*OUTGOING.get(), *added))
  try:
    yield
  finally:
    OUTGOING.reset(token)
