"""Replays every call that was recorded from a client with our client.

The requests must be the same. Our client gets the recorded answers. Errors must
have the code that the recorded ones mean. If clients retry an error, the call
ends at the deadline with an error that names it.
"""

import contextlib
import io
import re

from absl.testing import absltest
from absl.testing import parameterized
from google.protobuf import message
import grpc

from saxml_ext.client import sax
from saxml_ext.client import saxutil
from saxml_ext.client.models import custom
from saxml_ext.client.transport import address_watcher
from saxml_ext.client.transport import admin_client
from saxml_ext.client.transport import blocking
from saxml_ext.client.transport import data_client
from saxml_ext.common import cell as cell_files
from saxml_ext.common import errors
from saxml_ext.protobuf import admin_pb2
from tests.interop import recorded
from tests.interop import replayer

_CELL = '/sax/test'
_ROWS = [row for row in recorded.rows() if row.caller == recorded.CLIENT]
_RETRIED = frozenset(
  {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED}
)

# The first is long enough for one call. The second is short enough for calls
# that never succeed.
_LONG, _SHORT = 60.0, 1.0


def _is_retried(row: recorded.Row) -> bool:
  if row.code in _RETRIED:
    return True
  is_data = row.service != 'sax.Admin'
  return is_data and row.code is grpc.StatusCode.NOT_FOUND


def _text(row: recorded.Row) -> str:
  """Returns a pattern for the error's text, without the code at its end."""
  return re.escape(row.details.split(': rpc error: ')[0])


class ReplayTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.server = replayer.Replayer()
    self.addCleanup(self.server.stop)
    self.root = self.create_tempdir().full_path
    sax.SetRoot(self.root)
    cell_files.write_location(
      self.root, _CELL, admin_pb2.Location(location=self.server.address)
    )

  def test_there_are_rows(self):
    self.assertEqual(len(_ROWS), 62)

  @parameterized.named_parameters((row.name(), row) for row in _ROWS)
  def test_row(self, row: recorded.Row):
    self.server.answer(row)
    timed_out = row.code is grpc.StatusCode.DEADLINE_EXCEEDED
    fails = _is_retried(row) or timed_out
    self.timeout = _SHORT if fails else _LONG
    call = getattr(self, f'call_{row.method}')
    if row.code is grpc.StatusCode.OK:
      self.check_result(call(row), row)
    elif fails:
      pattern = '' if timed_out else _text(row)
      with self.assertRaisesRegex(errors.DeadlineExceeded, pattern):
        call(row)
    else:
      kind = type(errors.from_code(row.code, ''))
      with self.assertRaisesRegex(kind, _text(row)):
        call(row)
    method = f'/{row.service}/{row.method}'
    sent = [data for name, data in self.server.requests if name == method]
    self.assertEqual(type(row.request).FromString(sent[0]), row.request)
    self.assertEqual(len(sent) > 1, _is_retried(row), sent)

  def check_result(self, result, row: recorded.Row) -> None:
    """Compares the result of a call with the recorded response."""
    if row.method == 'GenerateStream':
      items = [
        [(i.text, i.prefix_len, list(i.scores)) for i in response.items]
        for response in row.responses
      ]
      self.assertEqual(result, items)
      return
    [response] = row.responses
    expected = {
      'Generate': lambda: [(t.text, t.score) for t in response.texts],
      'Score': lambda: list(response.logp),
      'Embed': lambda: list(response.embedding),
      'Gradient': lambda: (
        list(response.score),
        {k: list(v.values) for k, v in response.gradients.items()},
      ),
      'Stats': lambda: [
        (
          admin_pb2.ModelServer.ChipType.Name(s.chip_type),
          admin_pb2.ModelServer.ChipTopology.Name(s.chip_topology),
          s.num_replicas,
        )
        for s in response.model_server_type_stats
      ],
      'List': lambda: [
        (
          item.model.model_path,
          item.model.checkpoint_path,
          len(item.modelet_addresses),
        )
        if row.request.model_id
        else item.model.model_id
        for item in response.published_models
      ],
    }
    if row.method in expected:
      self.assertEqual(result, expected[row.method]())
    elif isinstance(result, message.Message):
      self.assertEqual(result, response)

  def options(self) -> sax.AdminOptions:
    return sax.AdminOptions(timeout=self.timeout)

  def client(self, row: recorded.Row) -> data_client.DataClient:
    return data_client.DataClient(
      row.request.model_key,
      sax.Options(proxy_addr=self.server.address),
      blocking.transport,
    )

  def lm(self, row: recorded.Row) -> sax.LanguageModel:
    return sax.LanguageModel(self.client(row))

  def model_options(self, row: recorded.Row) -> sax.ModelOptions:
    options = sax.ModelOptions(timeout=self.timeout)
    extra = row.request.extra_inputs
    for key, value in extra.items.items():
      options.SetExtraInput(key, value)
    for key, value in extra.strings.items():
      options.SetExtraInputString(key, value)
    self.assertEmpty(extra.tensors)
    return options

  def call_Publish(self, row: recorded.Row):
    model = row.request.model
    sax.Publish(
      model.model_id,
      model.model_path,
      model.checkpoint_path,
      model.requested_num_replicas,
      dict(model.overrides),
      self.options(),
    )

  def call_Unpublish(self, row: recorded.Row):
    sax.Unpublish(row.request.model_id, self.options())

  def call_Update(self, row: recorded.Row):
    """Calls the command for the field that the recorded call changed."""
    expected = row.request.model
    before = admin_pb2.Model()
    before.CopyFrom(expected)
    before.ClearField('acls')
    if row.step.startswith('update replicas='):
      before.requested_num_replicas = expected.requested_num_replicas + 1
      args = ['update', f'-replicas={expected.requested_num_replicas}']
      args.append(expected.model_id)
    elif row.step == 'update_checkpoint':
      before.checkpoint_path = 'old'
      args = ['update_checkpoint', expected.model_id, expected.checkpoint_path]
    else:
      self.assertStartsWith(row.step, 'setacl model')
      before.acls.items['lm.score'] = 'acl/a'
      args = ['setacl', expected.model_id, 'lm.score', '']
    listed = admin_pb2.ListResponse()
    listed.published_models.add(model=before)
    self.server.rows['/sax.Admin/List'] = recorded.Row(
      **{**vars(row), 'responses': (listed,), 'raw_code': grpc.StatusCode.OK}
    )
    stderr = io.StringIO()
    with contextlib.redirect_stderr(stderr):
      code = saxutil.run([f'--sax_root={self.root}', *args])
    if code:
      raise errors.from_code(row.code, stderr.getvalue())

  def call_List(self, row: recorded.Row):
    if row.request.model_id:
      return [sax.List(row.request.model_id, self.options())]
    return sax.ListAll(_CELL, self.options())

  def call_Stats(self, row: recorded.Row):
    return sax.Stats(row.request.model_id or _CELL, self.options())

  def call_WaitForReady(self, row: recorded.Row):
    sax.WaitForReady(
      row.request.model_id, row.request.num_replicas, self.options()
    )

  def call_WatchLoc(self, row: recorded.Row):
    known = address_watcher.AddressSet()
    known.admin_server_id = row.request.admin_server_id
    known.seqno = row.request.seqno
    request = known.request(row.request.model_id)
    admin = admin_client.get(_CELL)
    return blocking.run(admin.call('WatchLoc', request, self.timeout))

  def call_Generate(self, row: recorded.Row):
    return self.lm(row).Generate(row.request.text, self.model_options(row))

  def call_GenerateStream(self, row: recorded.Row):
    got = []
    self.lm(row).GenerateStream(
      row.request.text,
      lambda last, items: None if last else got.append(items),
      self.model_options(row),
    )
    return got

  def call_Score(self, row: recorded.Row):
    return self.lm(row).Score(
      row.request.prefix, list(row.request.suffix), self.model_options(row)
    )

  def call_Embed(self, row: recorded.Row):
    return self.lm(row).Embed(row.request.text, self.model_options(row))

  def call_Gradient(self, row: recorded.Row):
    return self.lm(row).Gradient(
      row.request.prefix, row.request.suffix, self.model_options(row)
    )

  def call_Export(self, row: recorded.Row):
    request = row.request
    [mode] = [
      k for k, v in custom.SEED_MODES.items() if v == request.rng_seed_mode
    ]
    custom.BlockingModelet(self.client(row)).Export(
      request.export_path,
      list(request.method_names),
      list(request.signatures),
      mode,
      request.enable_gpu_multi_device_execution,
      sax.ModelOptions(timeout=self.timeout),
    )


if __name__ == '__main__':
  absltest.main()
