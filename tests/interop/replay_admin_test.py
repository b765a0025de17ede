"""Replays every call that was recorded at an admin server against ours.

The situation is the same. These differences are allowed:
* Errors have the code that the recorded ones have in their text.
* List has one more field, `replicas`, which other clients skip.
* gRPC's own answers (an unknown method, a malformed reflection request) have
the texts of gRPC for Python.
"""

import asyncio
import operator
from unittest import mock

from absl.testing import absltest
import grpc
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha import reflection_pb2_grpc

from saxml_ext.admin.testing import cell_fixture
from saxml_ext.admin.testing import fake_modelet
from saxml_ext.common.testing import golden
from saxml_ext.protobuf import admin_pb2
from tests.interop import recorded

_PATIENCE = 120.0

_NEED_MODEL = frozenset(
  {
    'publish dup',
    'update model path',
    'update to negative',
    'watch negative seqno',
    'watch fresh, no replica, 1.5s',
    'wait -1',
    'wait 0',
    'wait 1 timeout 1.5s',
    'wait times out',
  }
)
_NEED_UNLOADING = frozenset(
  {'publish while name still draining', 'republish immediately'}
)


def _listed(response: admin_pb2.ListResponse) -> admin_pb2.ListResponse:
  """Removes allowed differences: the order, and fields of our server only."""
  result = admin_pb2.ListResponse(
    published_models=sorted(
      response.published_models, key=operator.attrgetter('model.model_id')
    )
  )
  for item in result.published_models:
    item.ClearField('replicas')
  return result


def _stats(response: admin_pb2.StatsResponse) -> admin_pb2.StatsResponse:
  result = admin_pb2.StatsResponse()
  result.CopyFrom(response)
  result.model_server_type_stats.sort(key=lambda s: s.chip_type)
  return result


class TablesTest(cell_fixture.CellTestCase):
  """Replays the recorded tables of requests; ids_test replays their ids."""

  async def outcome(self, row, call) -> None:
    if row['ok']:
      await call
      return
    code = recorded.code_in(row['error'])
    self.assertEndsWith(await self.fails(code, call), row['error'])

  async def test_updates(self):
    await self.publish(acls={'items': {'lm.score': ''}})
    changes = {
      'change none': {},
      'change model_id': {'model_id': cell_fixture.MODEL + '2'},
      'change model_path': {'model_path': 'p.B'},
      'change num_replicas': {'requested_num_replicas': 3},
      'change overrides': {'overrides': {'A': '1'}},
      'change acls_empty_value': {'acls': {'items': {'lm.generate': ''}}},
    }
    rows = golden.load('validation.json')['model_update']
    self.assertCountEqual(changes, [row['input'] for row in rows])
    for row in rows:
      if row['input'] == 'change model_id':
        continue  # On the wire, it is an update of an unpublished model.
      with self.subTest(row['input']):
        model = admin_pb2.Model(**changes[row['input']])
        merged = (await self.listed()).model
        merged.MergeFrom(model)
        request = admin_pb2.UpdateRequest(model=merged)
        await self.outcome(row, self.stub.Update(request, timeout=_PATIENCE))

  async def test_requests(self):
    await self.publish()
    modelet = await self.joined()
    await self.ready()
    join = admin_pb2.JoinRequest(
      address=modelet.address, model_server=modelet.spec
    )
    calls = {
      'watchloc seqno -1': lambda: self.watch(-1),
      'watchloc seqno 0': lambda: self.watch(0),
      'join no address': lambda: self.stub.Join(
        admin_pb2.JoinRequest(model_server=modelet.spec)
      ),
      'join no model_server': lambda: self.stub.Join(
        admin_pb2.JoinRequest(address=modelet.address)
      ),
      'join ok': lambda: self.stub.Join(join),
    }
    for row in golden.load('validation.json')['requests']:
      with self.subTest(row['input']):
        if row['input'] == 'watchloc other cell':
          # The id is valid, but no such model is published here.
          call = self.watch(model_id='/sax/other/m')
          await self.fails(grpc.StatusCode.NOT_FOUND, call)
        else:
          await self.outcome(row, calls[row['input']]())


class ReplayTest(cell_fixture.CellTestCase):
  async def test_every_row(self):
    rows = [r for r in recorded.rows() if r.callee == recorded.ADMIN]
    self.assertLen(rows, 103)
    for row in rows:
      with self.subTest(row.name()):
        # Each row gets its own cell.
        await self.asyncTearDown()
        await self.asyncSetUp()
        if row.request is None:
          await self.replay_foreign(row)
        else:
          await getattr(self, f'replay_{row.method}')(row)

  async def check(self, row: recorded.Row, call, normal=lambda r: r) -> None:
    """Awaits a call; compares its outcome with the recorded one."""
    if row.code is not grpc.StatusCode.OK:
      text = await self.fails(row.code, call)
      if row.details not in recorded.CALLERS_TEXTS:
        self.assertEqual(text, row.details)
      return
    [expected] = row.responses
    self.assertEqual(normal(await call), normal(expected))

  def call(self, row: recorded.Row, request=None):
    timeout = _PATIENCE
    if row.code is grpc.StatusCode.DEADLINE_EXCEEDED:
      timeout = 0.3
    method = getattr(self.stub, row.method)
    return method(request or row.request, timeout=timeout)

  async def prepare(self, row: recorded.Row) -> None:
    model_id = getattr(row.request, 'model_id', '')
    if row.step in _NEED_MODEL:
      await self.publish(model_id or row.request.model.model_id)
    elif row.step in _NEED_UNLOADING:
      model = row.request.model
      modelet = await self.joined(model.model_path)
      await self.publish(model.model_id, model.model_path)
      await self.ready(model_id=model.model_id)
      modelet.gate.clear()
      self.addCleanup(modelet.gate.set)
      await self.unpublish(model.model_id)

  async def replay_Publish(self, row: recorded.Row) -> None:
    await self.prepare(row)
    await self.check(row, self.call(row))
    if row.code is grpc.StatusCode.OK:
      listed = await self.listed(row.request.model.model_id)
      expected = admin_pb2.Model()
      expected.CopyFrom(row.request.model)
      expected.ClearField('uuid')
      expected.ClearField('method_names')
      self.assertEqual(listed.model, expected)

  async def replay_Update(self, row: recorded.Row) -> None:
    await self.prepare(row)
    model = row.request.model
    if row.code is grpc.StatusCode.OK:
      await self.publish(model.model_id, model.model_path)
    await self.check(row, self.call(row))

  async def replay_Unpublish(self, row: recorded.Row) -> None:
    if row.code is grpc.StatusCode.OK:
      await self.publish(row.request.model_id)
    await self.check(row, self.call(row))

  async def replay_List(self, row: recorded.Row) -> None:
    if row.code is not grpc.StatusCode.OK:
      await self.check(row, self.call(row))
      return
    names = {}
    with mock.patch.object(fake_modelet, 'BAD_CHECKPOINT', 'fail'):
      for item in row.responses[0].published_models:
        await self.publish_listed(item, names)
    [response] = row.responses
    expected = _listed(recorded.renamed(response, names))
    await self.eventually_equal(lambda: self.call(row), expected, _listed)

  async def publish_listed(
    self, item: admin_pb2.PublishedModel, names: dict[str, str]
  ) -> None:
    """Brings a model to the state in which it was listed."""
    model = admin_pb2.Model()
    model.CopyFrom(item.model)
    model.ClearField('method_names')
    for address in item.modelet_addresses:
      modelet = await self.joined(model.model_path)
      names[address] = modelet.address
      if not item.model.method_names and model.checkpoint_path != 'fail':
        modelet.gate.clear()  # The model was still loading.
        self.addCleanup(modelet.gate.set)
    await self.stub.Publish(admin_pb2.PublishRequest(model=model))
    if item.model.method_names:
      await self.ready(len(item.modelet_addresses), model.model_id)
    elif item.modelet_addresses and model.checkpoint_path == 'fail':
      [modelet] = self._modelets
      await self.eventually(lambda: modelet.reasons)

  async def eventually_equal(self, call, expected, normal) -> None:
    """Waits until a call's answer is as expected; fails with the last one."""
    for _ in range(100):
      got = normal(await call())
      if got == expected:
        return
      await asyncio.sleep(0.02)
    self.assertEqual(got, expected)

  async def replay_Stats(self, row: recorded.Row) -> None:
    if row.code is grpc.StatusCode.OK:
      [expected] = row.responses
      await self.join_servers(expected)
      if row.request.model_id:
        await self.publish(row.request.model_id)
        await self.ready(model_id=row.request.model_id)
    await self.check(row, self.call(row), _stats)

  async def join_servers(self, stats: admin_pb2.StatsResponse) -> None:
    """Adds as many servers as an answer counts."""
    paths = dict(stats.num_servers_by_servable_model_path)
    for kind in stats.model_server_type_stats:
      for _ in range(kind.num_replicas):
        served = [path for path, count in paths.items() if count]
        for path in served:
          paths[path] -= 1
        modelet = await self.start_modelet(*served)
        spec = modelet.spec
        spec.chip_type = kind.chip_type
        spec.chip_topology = kind.chip_topology
        await self.stub.Join(
          admin_pb2.JoinRequest(address=modelet.address, model_server=spec)
        )
    self.assertFalse(any(paths.values()), paths)

  async def replay_WaitForReady(self, row: recorded.Row) -> None:
    await self.prepare(row)
    count = row.request.num_replicas
    if row.code is grpc.StatusCode.OK and count > 0:
      for _ in range(count):
        await self.joined()
      await self.publish(row.request.model_id, replicas=count)
    await self.check(row, self.call(row))

  async def replay_Join(self, row: recorded.Row) -> None:
    request = row.request
    if row.code is grpc.StatusCode.OK:
      modelet = await self.start_modelet(
        *request.model_server.servable_model_paths
      )
      request = recorded.renamed(request, {request.address: modelet.address})
    await self.check(row, self.call(row, request))

  async def replay_WatchLoc(self, row: recorded.Row) -> None:
    if row.code is not grpc.StatusCode.OK:
      await self.prepare(row)
      await self.check(row, self.call(row))
      return
    modelet = await self.joined()
    model_id = row.request.model_id
    await self.publish(model_id)
    server_id = (await self.watch(model_id=model_id)).admin_server_id
    result = row.responses[0].result
    # Each change of the recorded log is a replica that starts or stops.
    length = result.next_seqno - len(result.changelog)
    if result.has_fullset:
      length = row.request.seqno
    for seqno in range(1, length):
      await self.change(model_id, seqno)
      await self.watch(seqno, server_id, model_id)
    names = {row.request.admin_server_id: server_id}
    names[row.responses[0].admin_server_id] = server_id
    for change in result.changelog:
      names[change.addition or change.deletion] = modelet.address
    request = recorded.renamed(row.request, names)
    call = asyncio.ensure_future(self.call(row, request))
    if result.has_fullset or (result.changelog and length):
      # If the model were unpublished before the call arrives, the call would
      # fail.
      await asyncio.sleep(0.5)
      self.assertFalse(call.done(), 'it should wait for a change')
      if result.has_fullset:
        await self.unpublish(model_id)
      else:
        await self.change(model_id, length)
    self.assertEqual(
      await call, recorded.renamed(row.responses[0], names), request
    )

  async def change(self, model_id: str, seqno: int) -> None:
    """Makes change number `seqno`; odd numbers remove the address."""
    model = (await self.listed(model_id)).model
    model.requested_num_replicas = 0 if seqno % 2 else 1
    await self.stub.Update(admin_pb2.UpdateRequest(model=model))

  async def replay_foreign(self, row: recorded.Row) -> None:
    """Replays calls that gRPC itself answers."""
    if row.service == 'sax.Admin':
      call = self.channel.unary_unary(f'/{row.service}/{row.method}')
      await self.fails(row.code, call(b''))
      return
    stub = reflection_pb2_grpc.ServerReflectionStub(self.channel)
    requests = iter([reflection_pb2.ServerReflectionRequest()])
    [response] = [r async for r in stub.ServerReflectionInfo(requests)]
    self.assertEqual(
      response.error_response.error_code,
      grpc.StatusCode[row.code.name].value[0],
    )


if __name__ == '__main__':
  absltest.main()
