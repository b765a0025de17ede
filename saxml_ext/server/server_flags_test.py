"""Tests of the effect of each flag on a running server."""

from concurrent import futures
import queue
import signal
import socket
import subprocess
import tempfile

from absl.testing import absltest
from absl.testing import flagsaver
from absl.testing import parameterized
import grpc

from saxml_ext.common import cell
from saxml_ext.common import errors
from saxml_ext.common.testing import modules
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import admin_pb2_grpc
from saxml_ext.protobuf import lm_pb2
from saxml_ext.protobuf import lm_pb2_grpc
from saxml_ext.protobuf import modelet_pb2
from saxml_ext.protobuf import modelet_pb2_grpc
from saxml_ext.server import server_flags
from saxml_ext.server.testing import small_model

_CELL = '/sax/test'
_TIMEOUT = 600


class ParsedTest(parameterized.TestCase):
  @parameterized.parameters(
    ('', 2, [{}, {}]),
    ('{},{}', 2, [{}, {}]),
    # This is the example in stock Sax's help text.
    (
      '{"BATCH_SIZE": 4, "BATCH_WAIT_SECS": 30},{"NUM_SAMPLES": 4}',
      2,
      [{'BATCH_SIZE': '4', 'BATCH_WAIT_SECS': '30'}, {'NUM_SAMPLES': '4'}],
    ),
    (
      '{"A": [1, 2], "B": true, "C": "x"}',
      1,
      [{'A': '[1, 2]', 'B': 'true', 'C': '"x"'}],
    ),
  )
  def test_overrides_are_parsed(self, text, count, expected):
    with flagsaver.flagsaver(model_config_overrides=text):
      self.assertEqual(server_flags.overrides(count), expected)

  @parameterized.parameters(
    ('{"A": 1', 1, 'is not a list of JSON objects'),
    ('{}', 2, 'has 1 entries for 2 models'),
    ('1', 1, 'has 1 entries for 1 models. Pass one JSON object'),
  )
  def test_invalid_overrides_are_refused(self, text, count, message):
    with flagsaver.flagsaver(model_config_overrides=text):
      with self.assertRaisesRegex(errors.InvalidArgument, message):
        server_flags.overrides(count)

  @flagsaver.flagsaver(deterministic_rng=True)
  def test_seed_equals_that_of_stock_sax(self):
    self.assertEqual(server_flags.seed(), 1234)


class _Admin(admin_pb2_grpc.AdminServicer):
  def __init__(self):
    self.joins: queue.Queue[admin_pb2.JoinRequest] = queue.Queue()

  def Join(self, request, context):
    self.joins.put(request)
    return admin_pb2.JoinResponse()


class RunningTest(absltest.TestCase):
  """Tests a server of two sampling models, with all flags but --admin_port."""

  def setUp(self):
    super().setUp()
    self.admin = _Admin()
    server = grpc.server(futures.ThreadPoolExecutor(2))
    admin_pb2_grpc.add_AdminServicer_to_server(self.admin, server)
    port = server.add_insecure_port('127.0.0.1:0')
    server.start()
    self.addCleanup(lambda: server.stop(None).wait())
    self.root = self.enterContext(tempfile.TemporaryDirectory())
    cell.write_config(
      self.root, _CELL, admin_pb2.Config(fs_root=self.root, admin_acl='acl/all')
    )
    cell.write_location(
      self.root, _CELL, admin_pb2.Location(location=f'127.0.0.1:{port}')
    )

  def _start(self, profiler_port: int) -> subprocess.Popen[str]:
    path = small_model.write(f'{self.root}/checkpoint')
    sampled = '"USE_BEAM_SEARCH": false, "NUM_SAMPLES": 2, "TEMPERATURE": 1.0'
    return modules.start(
      self,
      'saxml_ext.server.testing.small_server',
      '--port=0',
      f'--models={small_model.MODEL_PATH},{small_model.MODEL_PATH}',
      '--model_keys=/sax/test/a,/sax/test/b',
      f'--checkpoints={path},{path}',
      f'--model_config_overrides={{{sampled}}},'
      f'{{{sampled}, "MAX_DECODE_STEPS": 3}}',
      '--keep_statically_loaded_models',
      '--deterministic_rng',
      '--early_reject_on_dormant',
      f'--jax_profiler_port={profiler_port}',
      f'--jax_cache_dir={self.root}/cache',
      SAX_ROOT=self.root,
      SAX_CELL=_CELL,
    )

  def test_flags_take_effect(self):
    with socket.create_server(('127.0.0.1', 0)) as free:
      profiler_port = free.getsockname()[1]
    process = self._start(profiler_port)
    line = process.stdout.readline()
    self.assertRegex(line, '^Model server is serving at ')
    address = line.split()[-1]
    join = self.admin.joins.get(timeout=_TIMEOUT)
    self.assertEmpty(join.model_server.servable_model_paths)
    self.assertEqual(join.address, address)
    with socket.create_connection(('127.0.0.1', profiler_port), _TIMEOUT):
      pass
    with grpc.insecure_channel(address) as channel:
      self._check_answers(lm_pb2_grpc.LMServiceStub(channel))
      self._check_static(modelet_pb2_grpc.ModeletStub(channel))
      process.send_signal(signal.SIGTERM)
      self._check_dormant(channel)
    self.assertEqual(process.wait(_TIMEOUT), 0)

  def _check_answers(self, lm) -> None:
    def answers(key: str) -> list[list[str]]:
      request = lm_pb2.GenerateRequest(model_key=key, text='1,2,3')
      return [
        [t.text for t in lm.Generate(request, timeout=_TIMEOUT).texts]
        for _ in range(3)
      ]

    long, short = answers('/sax/test/a'), answers('/sax/test/b')
    # Each model has its own generator, and both start with the same seed.
    self.assertNotEqual(long[0], long[1])
    for one, other in zip(long, short):
      self.assertLen(one, 2)
      cut = sorted(','.join(text.split(',')[:3]) for text in one)
      self.assertEqual(cut, sorted(other))

  def _check_static(self, modelet) -> None:
    for name, request in (
      ('Unload', modelet_pb2.UnloadRequest(model_key='/sax/test/a')),
      ('Load', modelet_pb2.LoadRequest(model_key='/sax/test/c')),
    ):
      with self.assertRaises(grpc.RpcError) as caught:
        getattr(modelet, name)(request, timeout=_TIMEOUT)
      self.assertIs(caught.exception.code(), grpc.StatusCode.UNAVAILABLE)
      self.assertIn('keep_statically_loaded', caught.exception.details())

  def _check_dormant(self, channel: grpc.Channel) -> None:
    """Checks that the server refuses requests from the signal to its end."""
    request = lm_pb2.GenerateRequest(model_key='/sax/test/a', text='1,2,3')
    status = modelet_pb2.GetStatusResponse()
    try:
      while status.server_status.state != status.server_status.DORMANT:
        status = modelet_pb2_grpc.ModeletStub(channel).GetStatus(
          modelet_pb2.GetStatusRequest(), timeout=_TIMEOUT
        )
      self.assertEqual(status.server_status.explanation, 'it was asked to stop')
      lm_pb2_grpc.LMServiceStub(channel).Generate(request, timeout=_TIMEOUT)
    except grpc.RpcError as e:
      # On a slow machine, the server may already have ended.
      self.assertIs(e.code(), grpc.StatusCode.UNAVAILABLE)
    else:
      self.fail('a dormant server has answered')


if __name__ == '__main__':
  absltest.main()
