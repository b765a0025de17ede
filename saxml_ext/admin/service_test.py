"""Replays recorded calls that other admin servers refused."""

import re

from absl.testing import absltest
import grpc

from saxml_ext.admin import validation
from saxml_ext.admin.testing import cell_fixture
from saxml_ext.common import errors
from saxml_ext.common.testing import golden
from saxml_ext.protobuf import admin_pb2

# These calls were recorded while their model was published, and the others
# without a published model.
_NEED_MODEL = frozenset(
  {
    'publish dup',
    'update model path',
    'update to negative',
    'watch negative seqno',
  }
)
# These calls were recorded while a model server unloaded the model; server_test
# does that.
_NEED_UNLOADING = frozenset(
  {'publish while name still draining', 'republish immediately'}
)


def _refused() -> list[dict[str, str]]:
  """Returns the rows of refused calls, once per request and text."""
  rows = {}
  for row in golden.load('rpc_pairs.json'):
    if (
      row['method'].startswith('/sax.Admin/')
      and 'rpc error: code' in (row['details'] or '')
      and row['step'] not in _NEED_UNLOADING
    ):
      rows[row['method'], row['request_hex'], row['details']] = row
  return list(rows.values())


class RecordedRefusalsTest(cell_fixture.CellTestCase):
  async def test_refusals_have_the_recorded_text_and_code(self):
    rows = _refused()
    self.assertGreater(len(rows), 20)
    for row in sorted(rows, key=lambda r: r['step'] in _NEED_MODEL):
      with self.subTest(row['step']):
        method = row['method'].rpartition('/')[2]
        request = getattr(admin_pb2, method + 'Request').FromString(
          bytes.fromhex(row['request_hex'])
        )
        if row['step'] in _NEED_MODEL:
          await self.ensure_published(request)
        code = re.search(r'desc = (\w+)', row['details']).group(1)
        # Old servers send UNKNOWN, and have the code only in the text.
        [expected] = [
          c for c in grpc.StatusCode if errors.camel_case(c) == code
        ]
        text = await self.fails(
          expected, getattr(self.stub, method)(request, timeout=120)
        )
        self.assertEqual(text, row['details'])

  async def ensure_published(self, request) -> None:
    model_id = getattr(request, 'model_id', '') or request.model.model_id
    listed = await self.stub.List(admin_pb2.ListRequest())
    if model_id not in [p.model.model_id for p in listed.published_models]:
      await self.publish(model_id=model_id)


class LimitsTest(cell_fixture.CellTestCase):
  async def test_overrides_are_limited(self):
    most = validation.MAX_OVERRIDES
    overrides = {f'K{i}': '1' for i in range(most)}
    await self.publish(overrides=overrides)
    overrides['ONE_MORE'] = '1'
    text = await self.fails(
      grpc.StatusCode.INVALID_ARGUMENT,
      self.publish('/sax/test/n', overrides=overrides),
    )
    self.assertIn('has 1001 overrides, more than the limit of 1000', text)
    long = {'K': 'x' * validation.MAX_MODEL_BYTES}
    text = await self.fails(
      grpc.StatusCode.INVALID_ARGUMENT,
      self.publish('/sax/test/n', overrides=long),
    )
    self.assertRegex(text, 'has 262181 bytes .* the limit of 262144. Publish')

  async def test_overrides_that_no_params_have_are_refused(self):
    path = 'saxml_ext.params.gptj.TinyFP32'
    text = await self.fails(
      grpc.StatusCode.INVALID_ARGUMENT,
      self.publish(path=path, overrides={'BATCHSIZE': '3'}),
    )
    self.assertIn('no such attribute. Did you mean BATCH_SIZE?', text)
    await self.publish(path=path, overrides={'BATCH_SIZE': '3', 'ram': '1'})

  async def test_large_requests_are_refused_unread(self):
    text = await self.fails(
      grpc.StatusCode.RESOURCE_EXHAUSTED,
      self.channel.unary_unary('/sax.Admin/Update')(b'\xff' * 1_048_577),
    )
    self.assertIn(
      'has 1048577 bytes, more than the limit of 1048576. Send', text
    )


class StatsTest(cell_fixture.CellTestCase):
  async def test_counts_by_type_and_path(self):
    first = await self.joined('p.A', 'p.B')
    await self.joined('p.B')
    await self.publish()
    await self.ready()
    stats = await self.stub.Stats(admin_pb2.StatsRequest())
    self.assertEqual(
      stats.num_servers_by_servable_model_path, {'p.A': 1, 'p.B': 2}
    )
    [kind] = stats.model_server_type_stats
    self.assertEqual(kind.num_replicas, 2)
    self.assertEqual(kind.chip_type, first.spec.chip_type)

    one = await self.stub.Stats(
      admin_pb2.StatsRequest(model_id=cell_fixture.MODEL)
    )
    self.assertEqual(one.model_server_type_stats[0].num_replicas, 1)

  async def test_stats_of_an_empty_cell(self):
    self.assertEqual(
      await self.stub.Stats(admin_pb2.StatsRequest()),
      admin_pb2.StatsResponse(),
    )


class WaitForReadyTest(cell_fixture.CellTestCase):
  async def test_zero_or_fewer_replicas_are_always_ready(self):
    await self.publish()
    await self.ready(0)
    await self.ready(-1)

  async def test_wait_ends_with_the_deadline(self):
    await self.publish()
    await self.fails(grpc.StatusCode.DEADLINE_EXCEEDED, self.ready(timeout=0.3))


class PublishTest(cell_fixture.CellTestCase):
  async def test_publish_stores_all_fields_with_a_new_uuid(self):
    await self.publish(
      uuid=b'0123456789abcdef',
      overrides={'A': '1'},
      acls={'items': {'lm.score': ''}},
    )
    entry = self.admin.controller.get(cell_fixture.MODEL)
    self.assertLen(entry.model.uuid, 16)
    self.assertNotEqual(entry.model.uuid, b'0123456789abcdef')
    listed = (await self.listed()).model
    self.assertEqual(listed.overrides, {'A': '1'})
    self.assertEqual(listed.acls.items, {'lm.score': ''})

  async def test_update_replaces_everything_but_the_uuid(self):
    await self.publish(overrides={'A': '1'}, acls={'items': {'lm.score': ''}})
    uuid = self.admin.controller.get(cell_fixture.MODEL).model.uuid
    await self.stub.Update(
      admin_pb2.UpdateRequest(
        model=admin_pb2.Model(
          model_id=cell_fixture.MODEL,
          model_path='p.A',
          checkpoint_path='/c',
        )
      )
    )
    self.assertEqual(
      self.admin.controller.get(cell_fixture.MODEL).model,
      admin_pb2.Model(
        model_id=cell_fixture.MODEL,
        model_path='p.A',
        checkpoint_path='/c',
        uuid=uuid,
      ),
    )


if __name__ == '__main__':
  absltest.main()
