"""Runs a whole cell in this process, with a fake engine, for tests."""

import asyncio
import os
import threading
from typing import Any

from saxml_ext.admin import cell_admin as admin_lib
from saxml_ext.common import cell
from saxml_ext.common import grpc_util
from saxml_ext.common import net
from saxml_ext.common.telemetry import web
from saxml_ext.params import gptj
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import admin_pb2_grpc
from saxml_ext.server.monitoring import monitoring_app
from saxml_ext.server.testing import fake_runner
from saxml_ext.server.testing import server_fixture

CELL = '/sax/test'
MODEL = CELL + '/m'
PATH = 'test.Params'


class _Params(gptj.TinyTokenizedFP32):
  INPUT_SEQ_LEN = 8
  BUCKET_KEYS = None


class OneCell:
  """An admin server and a model server, each on its own event loop.

  Attributes:
    runner: The engine.
    admin_port: The loopback port of the admin server's metrics.
    server_port: The loopback port of the model server's metrics.
    sax_root: The root directory for clients.
  """

  def __init__(self, directory: str):
    """Starts both servers; waits until the model server has joined.

    Args:
      directory: An empty directory.
    """
    os.environ[net.LOOPBACK_VARIABLE] = '1'
    self.sax_root = directory + '/root'
    cell.write_config(
      self.sax_root,
      CELL,
      admin_pb2.Config(fs_root=directory + '/fs', admin_acl='acl/all'),
    )
    self._loop = asyncio.new_event_loop()
    self._thread = threading.Thread(target=self._loop.run_forever)
    self._thread.start()
    self.admin = self._run(self._start_admin())
    self.admin_port = self.admin.http_port
    self.runner = fake_runner.FakeRunner(num_slots=2)
    self.server = server_fixture.ServerFixture(
      server_fixture.fake_load_fn(_Params, self.runner)
    )
    pages = monitoring_app.Pages(self.server.models, lambda: True, (), '')
    self._web = web.WebServer(pages.app())
    self.server.run(self._web.start(0))
    self.server_port = self._web.port
    self._join()

  def stop(self) -> None:
    """Stops both servers."""
    self.server.run(self._web.stop())
    self.server.stop()
    self._run(self.admin.stop())
    self._loop.call_soon_threadsafe(self._loop.stop)
    self._thread.join()
    self._loop.close()

  def _run(self, coroutine: Any) -> Any:
    future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
    return future.result(600)

  async def _start_admin(self) -> admin_lib.AdminServer:
    admin = admin_lib.AdminServer(self.sax_root, CELL, 0, http_port=0)
    await admin.start()
    await admin.leading()
    return admin

  def _join(self) -> None:
    spec = admin_pb2.ModelServer(
      chip_type=admin_pb2.ModelServer.CHIP_TYPE_CPU,
      chip_topology=admin_pb2.ModelServer.CHIP_TOPOLOGY_1,
      servable_model_paths=[PATH],
    )
    with grpc_util.channel(self.admin.address) as channel:
      admin_pb2_grpc.AdminStub(channel).Join(
        admin_pb2.JoinRequest(address=self.server.address, model_server=spec),
        timeout=600,
      )
