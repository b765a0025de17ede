"""JAX profiles of a server that runs, taken on demand."""

import asyncio
import datetime
import os

import jax

from saxml_ext.common import errors

_LEAST_SECS, _MOST_SECS = 0.1, 60.0


class Profiles:
  """Takes one profile at a time."""

  def __init__(self, directory: str):
    """Takes the directory that gets a folder per profile; '' for none."""
    self._directory = directory
    self._busy = False

  async def take(self, seconds: float) -> str:
    """Profiles this process, whatever it does meanwhile.

    Args:
      seconds: from 0.1 to 60.

    Returns:
      The folder, which TensorBoard's profile plugin and XProf read.

    Raises:
      FailedPrecondition: there is no directory for profiles.
      InvalidArgument: that is too short or too long.
      ResourceExhausted: another profile is being taken.
    """
    if not self._directory:
      raise errors.FailedPrecondition(
        'no profiles are taken here: start the server with --profile_dir=DIR'
      )
    if not _LEAST_SECS <= seconds <= _MOST_SECS:
      raise errors.InvalidArgument(
        f'seconds is {seconds:g}; from {_LEAST_SECS:g} to {_MOST_SECS:g}'
      )
    if self._busy:
      raise errors.ResourceExhausted(
        'another profile is being taken; try again when it is done',
        retry_after=seconds,
      )
    self._busy = True
    try:
      return await self._take(seconds)
    finally:
      self._busy = False

  async def _take(self, seconds: float) -> str:
    now = datetime.datetime.now(datetime.UTC)
    folder = os.path.join(self._directory, now.strftime('%Y%m%d-%H%M%S'))
    # JAX's programs and devices: with every call of Python besides, a server
    # would do little else than be profiled.
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    # On threads, for both take a while; requests are served meanwhile.
    await asyncio.to_thread(
      jax.profiler.start_trace, folder, profiler_options=options
    )
    try:
      await asyncio.sleep(seconds)
    finally:
      await asyncio.to_thread(jax.profiler.stop_trace)
    return folder
