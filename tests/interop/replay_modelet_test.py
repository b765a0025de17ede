"""Replays calls from an admin server to a model server with our admin server.

One difference is allowed: our server asks for the reasons of failures with
every GetStatus.
"""

from absl.testing import absltest
import grpc

from saxml_ext.admin.testing import cell_fixture
from saxml_ext.admin.testing import fake_modelet
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import modelet_pb2
from tests.interop import recorded


class _Modelet(fake_modelet.FakeModelet):
  """A modelet that records requests and answers GetStatus as the test sets it.

  Attributes:
    requests: The requests of all methods except GetStatus, in order.
    status_request: The latest GetStatus request.
    status: The answer to GetStatus; None for the default.
  """

  def __init__(self, path: str):
    super().__init__(path)
    self.requests = []
    self.status_request: modelet_pb2.GetStatusRequest | None = None
    self.status: modelet_pb2.GetStatusResponse | None = None

  async def Load(self, request, context):
    self.requests.append(request)
    return await super().Load(request, context)

  async def UpdateLoaded(self, request, context):
    self.requests.append(request)
    return await super().UpdateLoaded(request, context)

  async def Unload(self, request, context):
    self.requests.append(request)
    return await super().Unload(request, context)

  async def GetStatus(self, request, context):
    self.status_request = request
    return self.status or await super().GetStatus(request, context)


class ReplayTest(cell_fixture.CellTestCase):
  async def test_every_row(self):
    rows = [
      row
      for row in recorded.rows()
      if row.service == 'sax.Modelet' and row.caller != recorded.CLIENT
    ]
    self.assertLen(rows, 11)
    for row in rows:
      with self.subTest(row.name()):
        # Each row gets its own cell.
        await self.asyncTearDown()
        await self.asyncSetUp()
        await getattr(self, f'replay_{row.method}')(row)

  async def served(self, path: str = 'p.A') -> _Modelet:
    modelet = _Modelet(path)
    await modelet.start()
    self._modelets.append(modelet)
    await self.join(modelet)
    return modelet

  async def replay_Load(self, row: recorded.Row) -> None:
    request = row.request
    modelet = await self.served(request.model_path)
    model = admin_pb2.Model(
      model_id=request.model_key,
      model_path=request.model_path,
      checkpoint_path=request.checkpoint_path,
      requested_num_replicas=1,
      overrides=request.overrides,
    )
    await self.stub.Publish(admin_pb2.PublishRequest(model=model))
    await self.eventually(lambda: modelet.requests)
    self.assertEqual(modelet.requests[0], request)

  async def replay_Unload(self, row: recorded.Row) -> None:
    modelet = await self.published(row.request.model_key)
    await self.unpublish(row.request.model_key)
    await self.eventually(lambda: len(modelet.requests) > 1)
    self.assertEqual(modelet.requests[1], row.request)

  async def replay_UpdateLoaded(self, row: recorded.Row) -> None:
    modelet = await self.published(row.request.model_key)
    model = (await self.listed(row.request.model_key)).model
    model.checkpoint_path = row.request.checkpoint_path
    await self.stub.Update(admin_pb2.UpdateRequest(model=model))
    await self.eventually(lambda: len(modelet.requests) > 1)
    self.assertEqual(modelet.requests[1], row.request)

  async def published(self, model_id: str) -> _Modelet:
    modelet = await self.served()
    await self.publish(model_id)
    await self.ready(model_id=model_id)
    return modelet

  async def replay_GetStatus(self, row: recorded.Row) -> None:
    if row.code is not grpc.StatusCode.OK:
      modelet = await self.served()
      self.assertLen(self.admin.controller.members.all(), 1)
      await modelet.kill()
      await self.eventually(lambda: not self.admin.controller.members.all())
      return
    [status] = row.responses
    if not status.models:
      modelet = await self.served()
    else:
      [info] = status.models
      modelet = await self.published(info.model_key)
    modelet.status = status
    modelet.status_request = None
    await self.eventually(lambda: modelet.status_request)
    status_request = modelet_pb2.GetStatusRequest()
    status_request.CopyFrom(modelet.status_request)
    status_request.include_failure_reasons = row.request.include_failure_reasons
    self.assertEqual(status_request, row.request)
    for info in status.models:
      methods = sorted(stats.method for stats in info.method_stats)
      listed = await self.listed(info.model_key)
      self.assertEqual(list(listed.model.method_names), methods)
      self.assertEqual(list(listed.modelet_addresses), [modelet.address])


if __name__ == '__main__':
  absltest.main()
