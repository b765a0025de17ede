"""Which request a model's state on the servers goes back to.

Servers are told to load and unload by coroutines of their own, some time after
somebody asked to publish. What they are told carries the id and the trace of
that request, so that a publish can be followed to the servers.
"""

from typing import TypeAlias

from saxml_ext.common.telemetry import tracing

Metadata: TypeAlias = tuple[tuple[str, str], ...]

# Models that are remembered; of more, those asked for longest ago are not.
_MOST = 1000


class Origins:
  """The last request about each model."""

  def __init__(self):
    self._by_model: dict[str, Metadata] = {}

  def note(self, model_id: str) -> None:
    """The request that is being handled is about a model."""
    self._by_model.pop(model_id, None)
    named = tracing.current_id()
    if named:
      self._by_model[model_id] = (
        (tracing.REQUEST_ID, named),
        *tracing.carrier(),
      )
    while len(self._by_model) > _MOST:
      del self._by_model[next(iter(self._by_model))]

  def metadata(self, model_id: str) -> Metadata:
    """For calls about a model; empty if nobody asked since the start."""
    return self._by_model.get(model_id, ())
