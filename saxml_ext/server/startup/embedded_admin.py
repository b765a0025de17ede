"""An admin server in a model server's process, for a cell of one process."""

import asyncio

from absl import logging

from saxml_ext.admin import cell_admin as admin_server
from saxml_ext.common.security import access


class EmbeddedAdmin:
  """Starts and stops with the model server; use it on its event loop."""

  def __init__(self, sax_root: str, sax_cell: str, port: int, host: str):
    """Touches nothing yet.

    Args:
      sax_root: where cells keep their files.
      sax_cell: the cell it serves; admin_config has set it up.
      port: to listen on; 0 picks a free one.
      host: The address that `port` is on; '' is every interface.
    """
    # Who may call the one may call the other, by the same lists.
    self._server = admin_server.AdminServer(
      sax_root, sax_cell, port, access=access.current(), host=host
    )
    self._watching: asyncio.Task[None] | None = None

  async def start(self) -> None:
    """Begins to serve; another admin server of the cell may lead for now.

    Raises:
      errors.FailedPrecondition: the cell was never set up, or the port is
        taken.
    """
    await self._server.start()
    self._watching = asyncio.create_task(self._watch())
    print(f'Admin server is serving at {self._server.address}', flush=True)

  async def stop(self) -> None:
    """Leaves the cell to the next admin server."""
    if self._watching:
      self._watching.cancel()
    await self._server.stop()

  async def _watch(self) -> None:
    try:
      await self._server.failure()
    except Exception:  # pylint: disable=broad-exception-caught
      # Models can be served without it, and by another admin server.
      logging.exception('the admin server of this process has failed')
