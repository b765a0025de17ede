"""Finds the model of a call, and waits for one that is being reloaded."""

import asyncio
import math
import time

from saxml_ext.common import errors
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.lifecycle import lifecycle
from saxml_ext.server.loading import servable as servable_lib


async def serving(
  models: lifecycle.Models[servable_lib.Servable], key: str, deadline: float
) -> entry_lib.Serving[servable_lib.Servable]:
  """A model that serves; a call of a model that is being reloaded waits.

  Args:
    models: of this server.
    key: of the model.
    deadline: of the call, on the monotonic clock; inf for none.

  Raises:
    errors.NotFound: the model does not serve and is not being reloaded.
    errors.ResourceExhausted: too many calls wait for it already.
    errors.DeadlineExceeded: it was not reloaded in time.
    errors.Unavailable: this server is dormant, and refuses early.
  """
  while True:
    try:
      return models.serving(key)
    except errors.NotFound:
      reloaded = models.held(key)
      if reloaded is None:
        raise
    timeout = None if deadline == math.inf else deadline - time.monotonic()
    try:
      # Ends the future if the call is cancelled, which makes room for another.
      await asyncio.wait_for(asyncio.wrap_future(reloaded), timeout)
    except TimeoutError:
      raise errors.DeadlineExceeded(
        f'the deadline passed while {key} was being reloaded'
      ) from None
