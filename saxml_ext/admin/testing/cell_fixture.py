"""Runs an admin server and its model servers in one event loop, for tests."""

import asyncio
from collections.abc import Callable
import os
import tempfile
import time
import unittest
from unittest import mock

from absl.testing import absltest
import grpc

from saxml_ext.admin import cell_admin as server_lib
from saxml_ext.admin.leadership import election
from saxml_ext.admin.testing import fake_modelet
from saxml_ext.common import cell
from saxml_ext.common import net
from saxml_ext.common import storage
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import admin_pb2_grpc

CELL = '/sax/test'
MODEL = CELL + '/m'
# On an overloaded machine, a call or a condition may take this many seconds.
_PATIENCE = 120.0


class CellTestCase(unittest.IsolatedAsyncioTestCase, absltest.TestCase):
  """Starts the admin server of a new cell before each test.

  Attributes:
    admin: The running server.
    stub: A client of the server, over loopback.
  """

  async def asyncSetUp(self):
    os.environ[net.LOOPBACK_VARIABLE] = '1'
    # The test case turns on the loop's debug mode, which makes it much slower.
    asyncio.get_running_loop().set_debug(False)
    # An overloaded machine must not look like a leader that died.
    patience = election.Timing(beat=0.4, timeout=_PATIENCE, poll=0.15)
    self.enterContext(mock.patch.object(election, 'LOCAL', patience))
    self._dir = tempfile.TemporaryDirectory()
    self.root, self.fs_root = self._dir.name + '/r', self._dir.name + '/f'
    config = admin_pb2.Config(fs_root=self.fs_root, admin_acl='acl/all')
    cell.write_config(self.root, CELL, config)
    self._modelets: list[fake_modelet.FakeModelet] = []
    await self.start_admin()

  async def asyncTearDown(self):
    await self.stop_admin()
    for modelet in self._modelets:
      await modelet.kill()
    self._dir.cleanup()

  async def start_admin(self, port: int = 0, by_chip: bool = False) -> None:
    self.admin = server_lib.AdminServer(self.root, CELL, port, 0, by_chip)
    await self.admin.start()
    await self.admin.leading()
    self.channel = grpc.aio.insecure_channel(self.admin.address)
    self.stub = admin_pb2_grpc.AdminStub(self.channel)

  async def stop_admin(self) -> None:
    await self.channel.close()
    await self.admin.stop()

  async def start_modelet(self, *paths: str) -> fake_modelet.FakeModelet:
    modelet = fake_modelet.FakeModelet(*(paths or ('p.A',)))
    await modelet.start()
    self._modelets.append(modelet)
    return modelet

  async def join(self, modelet: fake_modelet.FakeModelet, **fields) -> None:
    await self.stub.Join(
      admin_pb2.JoinRequest(
        address=modelet.address, model_server=modelet.spec, **fields
      ),
      timeout=_PATIENCE,
    )

  async def joined(self, *paths: str) -> fake_modelet.FakeModelet:
    modelet = await self.start_modelet(*paths)
    await self.join(modelet)
    return modelet

  async def publish(
    self,
    model_id: str = MODEL,
    path: str = 'p.A',
    checkpoint: str = 'None',
    replicas: int = 1,
    **fields,
  ) -> None:
    await self.stub.Publish(
      admin_pb2.PublishRequest(
        model=admin_pb2.Model(
          model_id=model_id,
          model_path=path,
          checkpoint_path=checkpoint,
          requested_num_replicas=replicas,
          **fields,
        )
      ),
      timeout=_PATIENCE,
    )

  async def update(self, **fields) -> None:
    """Changes some fields of MODEL."""
    listed = await self.listed()
    model = listed.model
    for name, value in fields.items():
      setattr(model, name, value)
    await self.stub.Update(
      admin_pb2.UpdateRequest(model=model), timeout=_PATIENCE
    )

  async def unpublish(self, model_id: str = MODEL) -> None:
    await self.stub.Unpublish(
      admin_pb2.UnpublishRequest(model_id=model_id), timeout=_PATIENCE
    )

  async def ready(
    self, replicas: int = 1, model_id: str = MODEL, timeout: float = _PATIENCE
  ) -> None:
    await self.stub.WaitForReady(
      admin_pb2.WaitForReadyRequest(model_id=model_id, num_replicas=replicas),
      timeout=timeout,
    )

  async def listed(self, model_id: str = MODEL) -> admin_pb2.PublishedModel:
    response = await self.stub.List(
      admin_pb2.ListRequest(model_id=model_id), timeout=_PATIENCE
    )
    return response.published_models[0]

  async def watch(
    self,
    seqno: int = 0,
    server_id: str = '',
    model_id: str = MODEL,
    timeout: float = _PATIENCE,
  ) -> admin_pb2.WatchLocResponse:
    return await self.stub.WatchLoc(
      admin_pb2.WatchLocRequest(
        model_id=model_id, seqno=seqno, admin_server_id=server_id
      ),
      timeout=timeout,
    )

  async def addresses(self) -> set[str]:
    """Returns the addresses that a new client would get."""
    known: set[str] = set()
    response = await self.watch()
    known.update(response.result.values)
    for change in response.result.changelog:
      known.add(change.addition)
      known.discard(change.deletion)
    return known - {''}

  def saved(self) -> list[str]:
    """Returns the names of the models in the state file."""
    data = storage.read_bytes(cell.state_path(self.fs_root, CELL))
    state = admin_pb2.State.FromString(data)
    return [m.model_id.rsplit('/')[-1] for m in state.models]

  async def eventually(
    self, condition: Callable[[], object], timeout: float = _PATIENCE
  ) -> None:
    """Waits until a condition holds."""
    started = time.monotonic()
    while not condition():
      if time.monotonic() - started > timeout:
        self.fail(f'not within {timeout} s: {condition}')
      await asyncio.sleep(0.01)

  async def fails(self, code: grpc.StatusCode, call) -> str:
    """Awaits a call that fails with a code; returns the error's text."""
    with self.assertRaises(grpc.aio.AioRpcError) as raised:
      await call
    self.assertEqual(raised.exception.code(), code, raised.exception.details())
    return raised.exception.details()
