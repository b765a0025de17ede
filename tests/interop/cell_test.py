"""Tests clients of every kind against a cell of real processes.

The admin server and the model server are the programs of users, except for an
engine that answers at once. One client is not ours. It knows only what the
servers report by reflection.
"""

import asyncio
import contextlib
import io
import tempfile

from absl.testing import absltest
from google.protobuf import descriptor_pool
from google.protobuf import json_format
from google.protobuf import message_factory
import grpc
from grpc_reflection.v1alpha import proto_reflection_descriptor_database

from saxml_ext.client import sax
from saxml_ext.client import sax_aio
from saxml_ext.client import saxutil
from saxml_ext.common import cell as cell_files
from saxml_ext.common import errors
from serve import children
from serve import local_cell
from serve import progress

_SERVER = 'tests/cell/instant_server'
_PARAMS = 'saxml_ext.params.gptj.TinyTokenizedFP32'
_CELL = local_cell.CELL
_MODEL = _CELL + '/m'
_LIMIT = sax.AdminOptions(120)


class CellTest(absltest.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    stack = contextlib.ExitStack()
    cls.addClassCleanup(stack.close)
    directory = stack.enter_context(tempfile.TemporaryDirectory())
    group = stack.enter_context(children.Children())
    cls.cell = local_cell.LocalCell(
      group, directory, directory, None, progress.Progress(), server=_SERVER
    )
    cls.cell.start()
    sax.Publish(_MODEL, _PARAMS, directory, 1, options=_LIMIT)
    sax.WaitForReady(_MODEL, 1, _LIMIT)

  def saxutil(self, code: int, *args: str) -> str:
    """Runs a command; returns its output, including stderr."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
      got = saxutil.run([f'--sax_root={self.cell.sax_root}', *args])
    self.assertEqual(got, code, out.getvalue())
    return out.getvalue()

  def test_commands(self):
    self.assertEqual(
      self.saxutil(0, 'ls', '-csv', _CELL), '# #,Model ID\n0,m\n'
    )
    self.assertIn('LOADED', self.saxutil(0, 'ls', '-status', _CELL))
    self.assertIn('CHIP_TYPE_CPU', self.saxutil(0, 'stats', _CELL))
    self.assertEqual(
      self.saxutil(0, 'lm.generate', '-terse', '-n=1', _MODEL, '1,2,3'),
      '1,2,3\n',
    )
    self.assertIn('-5', self.saxutil(0, 'lm.score', _MODEL, '1,2', '3,4,5'))

  def test_methods_that_the_model_lacks(self):
    for command in (
      ('lm.embed', _MODEL, '1'),
      ('lm.gradient', _MODEL, '1', '2'),
      ('lm.generate', '-stream', _MODEL, '1'),
      ('lm.generate', '-extra=nonsense:1', _MODEL, '1'),
      ('save', _MODEL, '/tmp/x'),
      ('export', _MODEL, 'lm.generate', '/tmp/x'),
      ('vm.classify', _MODEL, __file__),
      ('am.recognize', _MODEL, __file__),
    ):
      with self.subTest(command[0]):
        # The command fails at once, because a retry cannot help.
        out = self.saxutil(1, '--sax_timeout=60s', *command)
        self.assertNotIn('no answer within', out)

  def test_failed_load_is_reported(self):
    bad = _CELL + '/bad'
    self.take_away_server()
    self.saxutil(0, 'publish', bad, _PARAMS, 'None', '1', 'BATCH_SIZE=0')
    self.addCleanup(self.saxutil, 0, 'unpublish', bad)
    # The model is called before and after a failure.
    for _ in range(2):
      out = self.saxutil(1, '--sax_timeout=10m', 'lm.generate', bad, '1')
      self.assertIn('FAILED', out)
      self.assertIn('BATCH_SIZE', out)
    out = self.saxutil(0, 'ls', '-csv', '-status', bad)
    self.assertIn('FAILED', out)
    self.assertIn('BATCH_SIZE', out)

  def test_model_without_replicas_is_reported(self):
    model = _CELL + '/idle'
    self.saxutil(0, 'publish', model, _PARAMS, 'None', '0')
    self.addCleanup(self.saxutil, 0, 'unpublish', model)
    out = self.saxutil(1, '--sax_timeout=10m', 'lm.generate', model, '1')
    self.assertIn(f'update -replicas=1 {model}', out)

  def test_request_right_after_publish_is_answered(self):
    model = _CELL + '/new'
    self.take_away_server()
    self.saxutil(0, 'publish', model, _PARAMS, 'None', '1')
    self.addCleanup(self.saxutil, 0, 'unpublish', model)
    args = '--sax_timeout=10m', 'lm.generate', '-terse', '-n=1'
    self.assertEqual(self.saxutil(0, *args, model, '1,2'), '1,2\n')

  def take_away_server(self) -> None:
    """Gives the only server to another model until the test ends."""
    self.saxutil(0, 'update', '-replicas=0', _MODEL)
    self.addCleanup(self.saxutil, 0, 'wait', _MODEL)
    self.addCleanup(self.saxutil, 0, 'update', '-replicas=1', _MODEL)

  def test_a_thousand_requests_at_once(self):
    prompts = [f'{i // 100 + 1},{i % 100 + 1}' for i in range(1000)]

    async def ask():
      lm = sax_aio.Model(_MODEL).LM()
      options = sax.ModelOptions(timeout=120)
      return await asyncio.gather(
        *(lm.Generate(prompt, options) for prompt in prompts)
      )

    got = asyncio.run(ask())
    self.assertEqual([results[0][0] for results in got], prompts)

  def test_cancelled_requests_do_not_harm_the_server(self):
    async def ask():
      lm = sax_aio.Model(_MODEL).LM()
      tasks = [asyncio.create_task(lm.Generate('1,2')) for _ in range(200)]
      await asyncio.sleep(0.01)
      for task in tasks:
        task.cancel()
      await asyncio.gather(*tasks, return_exceptions=True)
      return await lm.Generate('3,4', sax.ModelOptions(timeout=120))

    self.assertEqual(asyncio.run(ask())[0][0], '3,4')

  def test_final_error_keeps_the_cause(self):
    with self.assertRaisesRegex(
      errors.DeadlineExceeded, 'UNAVAILABLE: .*127.0.0.1:1'
    ):
      options = sax.Options(proxy_addr='127.0.0.1:1')
      sax.Model(_MODEL, options).LM().Generate('1', sax.ModelOptions(0.5))

  def test_reflection_describes_the_services(self):
    address = cell_files.read_location(self.cell.sax_root, _CELL).location
    listed = _call(address, 'sax.Admin', 'List', {})
    [published] = listed['publishedModels']
    self.assertEqual(published['model']['modelId'], _MODEL)
    watched = _call(address, 'sax.Admin', 'WatchLoc', {'modelId': _MODEL})
    addresses = set(watched['result'].get('values', ()))
    for change in watched['result'].get('changelog', ()):
      addresses.discard(change.get('deletion'))
      addresses |= {change['addition']} if 'addition' in change else set()
    [replica] = addresses
    generated = _call(
      replica,
      'sax.server.lm.LMService',
      'Generate',
      {'modelKey': _MODEL, 'text': '5,6', 'extraInputs': {}},
    )
    self.assertEqual(generated['texts'][0]['text'], '5,6')
    status = _call(replica, 'sax.Modelet', 'GetStatus', {})
    self.assertEqual(status['models'][0]['modelStatus'], 'LOADED')


def _call(address: str, service: str, method: str, request: dict) -> dict:
  """Calls a method by the server's reflection; messages are JSON."""
  with grpc.insecure_channel(
    address, options=(('grpc.enable_http_proxy', 0),)
  ) as channel:
    pool = descriptor_pool.DescriptorPool(
      proto_reflection_descriptor_database.ProtoReflectionDescriptorDatabase(
        channel
      )
    )
    rpc_type = pool.FindServiceByName(service).FindMethodByName(method)
    request_type = message_factory.GetMessageClass(rpc_type.input_type)
    response_type = message_factory.GetMessageClass(rpc_type.output_type)
    rpc = channel.unary_unary(
      f'/{service}/{method}',
      request_serializer=request_type.SerializeToString,
      response_deserializer=response_type.FromString,
    )
    message = json_format.ParseDict(request, request_type())
    return json_format.MessageToDict(rpc(message, timeout=120))


if __name__ == '__main__':
  absltest.main()
