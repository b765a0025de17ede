"""Tests of a model server of three processes: its calls and its end."""

from concurrent import futures
import contextlib
import os
import queue
import signal
import time

from absl.testing import absltest
from absl.testing import parameterized
import grpc
from grpc_health.v1 import health_pb2
from grpc_health.v1 import health_pb2_grpc

from saxml_ext.common import cell
from saxml_ext.common import net
from saxml_ext.common.testing import modules
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import admin_pb2_grpc
from saxml_ext.protobuf import lm_pb2
from saxml_ext.protobuf import lm_pb2_grpc
from saxml_ext.protobuf import modelet_pb2
from saxml_ext.protobuf import modelet_pb2_grpc
from saxml_ext.server.testing import small_model

_CELL = '/sax/test'
_KEY = '/sax/test/m'
_SIZE = 3
_TIMEOUT = 600
# On a busy machine, a process may be silent for seconds.
_SILENCE = 4.0


class _Admin(admin_pb2_grpc.AdminServicer):
  """An admin server that records the servers that join and leave."""

  def __init__(self):
    self.joins = queue.Queue()
    self.leaving = queue.Queue()

  def Join(self, request, context):
    (self.leaving if request.leaving else self.joins).put(request)
    return admin_pb2.JoinResponse()


class GroupTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.dir = self.create_tempdir().full_path
    self.checkpoint = small_model.write(os.path.join(self.dir, 'ckpt'))
    self.admin = _Admin()
    server = grpc.server(futures.ThreadPoolExecutor(4))
    admin_pb2_grpc.add_AdminServicer_to_server(self.admin, server)
    port = server.add_insecure_port('127.0.0.1:0')
    server.start()
    self.addCleanup(lambda: server.stop(None).wait())
    cell.write_config(
      self.dir, _CELL, admin_pb2.Config(fs_root=self.dir, admin_acl='acl/all')
    )
    cell.write_location(
      self.dir, _CELL, admin_pb2.Location(location=f'127.0.0.1:{port}')
    )
    coordinator = f'127.0.0.1:{net.pick_free_port()}'
    self.ports = [net.pick_free_port() for _ in range(_SIZE)]
    self.processes = [self._start(i, coordinator) for i in range(_SIZE)]
    self.join = self._joined()
    self.channels = [
      self.enter_context(grpc.insecure_channel(f'127.0.0.1:{port}'))
      for port in self.ports
    ]
    self.modelet = modelet_pb2_grpc.ModeletStub(self.channels[0])
    self.lm = lm_pb2_grpc.LMServiceStub(self.channels[0])

  def _start(self, number: int, coordinator: str):
    os.mkdir(self._file(number, 'oddities'))
    log = self.enter_context(open(self._file(number, 'log'), 'w'))
    return modules.start(
      self,
      'saxml_ext.server.testing.small_group_server',
      f'--port={self.ports[number]}',
      f'--sax_root={self.dir}',
      f'--sax_cell={_CELL}',
      f'--coordinator_address={coordinator}',
      f'--num_processes={_SIZE}',
      f'--group_silence_secs={_SILENCE}',
      # Both names of the flag are tested.
      f'--{("process_id", "host_ordinal")[number % 2]}={number}',
      f'--oddities={self._file(number, "oddities")}',
      f'--calls={self._file(number, "calls")}',
      stderr=log,
    )

  def _file(self, number: int, name: str) -> str:
    return os.path.join(self.dir, f'{name}{number}')

  def _text(self, number: int, name: str) -> str:
    with open(self._file(number, name), encoding='utf-8') as file:
      return file.read()

  def _joined(self) -> admin_pb2.JoinRequest:
    deadline = time.monotonic() + _TIMEOUT
    while time.monotonic() < deadline:
      with contextlib.suppress(queue.Empty):
        return self.admin.joins.get(timeout=1)
      for i, process in enumerate(self.processes):
        self.assertIsNone(process.poll(), self._text(i, 'log'))
    raise AssertionError('nobody joins')

  @contextlib.contextmanager
  def _odd(self, number: int, oddity: str):
    path = os.path.join(self._file(number, 'oddities'), oddity)
    with open(path, 'w', encoding='utf-8'):
      pass
    yield
    os.remove(path)

  def _load(self) -> None:
    self._loading().result()

  def _loading(self) -> grpc.Future:
    return self.modelet.Load.future(
      modelet_pb2.LoadRequest(
        model_key=_KEY,
        model_path=small_model.MODEL_PATH,
        checkpoint_path=self.checkpoint,
        # There is one slot for each process, whose device holds the whole
        # model.
        overrides={
          'ICI_MESH_SHAPE': f'[1,{_SIZE},1]',
          'BATCH_SIZE': '3',
          'ENABLE_GENERATE_STREAM': 'true',
        },
      ),
      timeout=_TIMEOUT,
    )

  def _generate(self, text: str):
    return self.lm.Generate.future(
      lm_pb2.GenerateRequest(model_key=_KEY, text=text), timeout=_TIMEOUT
    )

  def _check_stream(self, text: str, answer: lm_pb2.GenerateResponse) -> None:
    """Checks a streamed answer, whose progress every process computes."""
    texts = [b'', b'']
    messages = list(
      self.lm.GenerateStream(
        lm_pb2.GenerateRequest(model_key=_KEY, text=text), timeout=_TIMEOUT
      )
    )
    for message in messages:
      for i, item in enumerate(message.items):
        texts[i] = texts[i][: item.prefix_len] + item.text.encode()
    self.assertEqual(
      [t.decode() for t in texts], [t.text for t in answer.texts]
    )

  def _pending(self) -> int:
    """Returns the number of pending requests of the leader."""
    (model,) = self.modelet.GetStatus(
      modelet_pb2.GetStatusRequest(include_method_stats=True)
    ).models
    return sum(stats.pending_reqs for stats in model.method_stats)

  def _wait(self, condition) -> None:
    deadline = time.monotonic() + _TIMEOUT
    while not condition():
      self.assertLess(time.monotonic(), deadline)
      time.sleep(0.05)

  def _exit_codes(self, numbers=range(_SIZE)) -> list[int]:
    return [self.processes[i].wait(_TIMEOUT) for i in numbers]

  def test_group_serves_as_one_model_server(self):
    self.assertEqual(self.join.address, f'127.0.0.1:{self.ports[0]}')
    self.assertLen(self.join.model_server.hosts, _SIZE)
    for channel in self.channels:
      check = health_pb2_grpc.HealthStub(channel).Check
      self.assertEqual(
        check(health_pb2.HealthCheckRequest()).status,
        health_pb2.HealthCheckResponse.SERVING,
      )
    for oddity, message in (
      ('fail', r'^host \S+ \(process 1\): there is no room on this disk$'),
      ('differ', r'^checkpoint differs: .*\(process 1\) has other. All hosts'),
    ):
      with self._odd(1, oddity), self.assertRaises(grpc.RpcError) as caught:
        self._load()
      self.assertRegex(caught.exception.details(), message)
      (model,) = self.modelet.GetStatus(
        modelet_pb2.GetStatusRequest(include_failure_reasons=True)
      ).models
      self.assertRegex(model.failure_reason, message)
    for number in (0, 1):
      with self._odd(number, 'slow'):
        loading = self._loading()
        time.sleep(1)
        self.modelet.Unload(
          modelet_pb2.UnloadRequest(model_key=_KEY), timeout=_TIMEOUT
        )
        self.assertIn('was unloaded', loading.exception().details())
    self._load()
    answers = [self._generate(f'{i},2,3') for i in range(5)]
    for answer in answers:
      self.assertLen(answer.result().texts, 2)
    self._check_stream('4,2,3', answers[4].result())
    score = self.lm.Score(
      lm_pb2.ScoreRequest(model_key=_KEY, prefix='1', suffix=['2,3'])
    )
    self.assertLess(score.logp[0], 0)
    # LeaderWorkerSet stops a group like this: calls in flight are answered.
    with self._odd(0, 'hang'):
      last = self._generate('7,8,9')
      self._wait(self._pending)
      for process in reversed(self.processes):
        process.send_signal(signal.SIGTERM)
      time.sleep(1)
    self.assertLen(last.result().texts, 2)
    self.assertEqual(self._exit_codes(), [0] * _SIZE)
    calls = self._text(0, 'calls')
    self.assertEqual(calls.count('Request('), 7)
    self.assertIn('stream=True', calls)
    self.assertIn('score', calls)
    self.assertEqual(self._text(1, 'calls'), calls)
    self.assertEqual(self._text(2, 'calls'), calls)

  def test_stopped_follower_drains_the_group(self):
    self.processes[2].send_signal(signal.SIGTERM)
    self.assertEqual(self._exit_codes(), [0] * _SIZE)
    leaving = self.admin.leaving.get(timeout=_TIMEOUT)
    self.assertEqual(leaving.leaving, 'it was asked to stop')

  # If the leader hangs, no program runs. If another follower hangs, a program
  # waits for it, and fails when the first follower is killed.
  @parameterized.parameters((signal.SIGKILL, 2), (signal.SIGSTOP, 0))
  def test_lost_follower_ends_the_group(self, number, hanging):
    self._load()
    with self._odd(hanging, 'hang'):
      answer = self._generate('1,2,3')
      self._wait(self._pending)
      time.sleep(0.5)
      begin = time.monotonic()
      self.processes[1].send_signal(number)
      # With this code, clients use another replica.
      self.assertEqual(
        answer.exception(_TIMEOUT).code(), grpc.StatusCode.UNAVAILABLE
      )
      leaving = self.admin.leaving.get(timeout=_TIMEOUT)
      self.assertRegex(leaving.leaving, r'^host \S+ \(process 1\) is lost')
      self.assertEqual(leaving.address, self.join.address)
      codes = self._exit_codes((0, 2))
      print(f'lost after {time.monotonic() - begin:.1f} s')
      self.assertNotIn(0, codes)
      self.assertRegex(
        self._text(0, 'log'), r'group: host \S+ \(process 1\) is lost'
      )

  @parameterized.parameters(signal.SIGKILL, signal.SIGSTOP)
  def test_lost_leader_ends_the_group(self, number):
    self.processes[0].send_signal(number)
    # JAX may end a process without a leader before our code does.
    self.assertNotIn(0, self._exit_codes((1, 2)))
    # At least one follower reports the end to the cell.
    leaving = self.admin.leaving.get(timeout=_TIMEOUT)
    self.assertEqual(leaving.address, self.join.address)
    self.assertRegex(leaving.leaving, r'^host \S+ \(process 0\) is lost')
    if number == signal.SIGSTOP:
      # When the leader continues, it detects that the followers are gone.
      self.processes[0].send_signal(signal.SIGCONT)
      self.assertEqual(self.processes[0].wait(_TIMEOUT), 1)


if __name__ == '__main__':
  absltest.main()
