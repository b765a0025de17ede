"""Tests of client traffic during loads, reloads and unloads.

The clients send requests without a pause and without retries, unlike our client
and stock Sax's. So every failed request fails the test.
"""

import collections
from collections.abc import Iterator
import contextlib
import tempfile
import threading

from absl.testing import absltest
from absl.testing import parameterized
import grpc

from saxml_ext.protobuf import lm_pb2
from saxml_ext.protobuf import modelet_pb2
from saxml_ext.server import jax_setup
from saxml_ext.server.loading import loader
from saxml_ext.server.loading import memory_check
from saxml_ext.server.testing import server_fixture
from saxml_ext.server.testing import small_model

_KEY, _OTHER = '/sax/test/m', '/sax/test/n'
_TIMEOUT = 600
_CLIENTS = 4
_PROMPTS = ('1,2,3', '4,5,6,7,8', '9', '10,11,12,13,14,15,16,17')


class _Traffic:
  """Clients that send requests to models until they are stopped.

  Attributes:
    answers: The count of each text, by model and prompt.
    failures: The error messages.
  """

  def __init__(self, lm, keys: tuple[str, ...]):
    self.answers: dict[tuple[str, str], collections.Counter[str]]
    self.answers = collections.defaultdict(collections.Counter)
    self.failures: list[str] = []
    self._lm = lm
    self._stop = threading.Event()
    self._counted = threading.Condition()
    self._count = 0
    self._threads = [
      threading.Thread(target=self._run, args=(keys[i % len(keys)], prompt))
      for i, prompt in enumerate(_PROMPTS[:_CLIENTS])
    ]

  def start(self) -> None:
    for thread in self._threads:
      thread.start()

  def stop(self) -> None:
    self._stop.set()
    for thread in self._threads:
      thread.join(_TIMEOUT)

  def wait_for(self, answers: int) -> None:
    """Waits for the given number of further answers."""
    with self._counted:
      target = self._count + answers
      self._counted.wait_for(lambda: self._count >= target, _TIMEOUT)

  def _run(self, key: str, prompt: str) -> None:
    request = lm_pb2.GenerateRequest(model_key=key, text=prompt)
    while not self._stop.is_set():
      try:
        response = self._lm.Generate(request, timeout=_TIMEOUT)
      except grpc.RpcError as e:
        self.failures.append(f'{key}: {e.code()}: {e.details()}')
        return
      with self._counted:
        self.answers[key, prompt][response.texts[0].text] += 1
        self._count += 1
        self._counted.notify_all()


class TrafficTest(parameterized.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    directory = cls.enterClassContext(tempfile.TemporaryDirectory())
    jax_setup.configure(f'{directory}/cache')  # Each program is compiled once.
    cls.first = small_model.write(f'{directory}/first')
    cls.second = small_model.write(f'{directory}/second', seed=1)

  def _serve(self, beside: bool = True) -> None:
    loads = memory_check.Loads(loader.load)
    has_room = loads.beside if beside else lambda spec: False
    self.server = server_fixture.ServerFixture(loads.load, has_room=has_room)
    self.addCleanup(self.server.stop)

  def _load(self, key: str, checkpoint: str, **overrides: str) -> None:
    self.server.load(
      key,
      model_path=small_model.MODEL_PATH,
      checkpoint_path=checkpoint,
      overrides=overrides,
    )

  def _reload(self, checkpoint: str) -> None:
    self.server.modelet.UpdateLoaded(
      modelet_pb2.UpdateLoadedRequest(
        model_key=_KEY, checkpoint_path=checkpoint
      ),
      timeout=_TIMEOUT,
    )

  @contextlib.contextmanager
  def _traffic(self, *keys: str) -> Iterator[_Traffic]:
    traffic = _Traffic(self.server.lm, keys)
    traffic.start()
    try:
      yield traffic
    finally:
      traffic.stop()
    self.assertEmpty(traffic.failures)

  @parameterized.named_parameters(
    ('beside', True), ('one_after_the_other', False)
  )
  def test_reloads_lose_no_request(self, has_room):
    self._serve(has_room)
    self._load(_KEY, self.first)
    with self._traffic(_KEY) as traffic:
      for checkpoint in (self.second, self.first):
        traffic.wait_for(10)
        self._reload(checkpoint)
      traffic.wait_for(10)
    # Each answer comes from one of the two checkpoints, and both have answered.
    for counts in traffic.answers.values():
      self.assertLen(counts, 2)

  def test_bad_checkpoint_loses_no_request(self):
    self._serve()
    self._load(_KEY, self.first)
    with self._traffic(_KEY) as traffic:
      traffic.wait_for(10)
      with self.assertRaises(grpc.RpcError) as caught:
        self._reload('/no/such/checkpoint')
      self.assertIs(caught.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
      traffic.wait_for(10)

  def test_models_with_different_params_serve_side_by_side(self):
    self._serve()
    self._load(_KEY, self.first)
    self._load(_OTHER, self.second, BATCH_SIZE='1', MAX_DECODE_STEPS='4')
    with self._traffic(_KEY, _OTHER) as traffic:
      traffic.wait_for(20)
      self._load('/sax/test/third', self.first)
      traffic.wait_for(10)
      self.server.modelet.Unload(
        modelet_pb2.UnloadRequest(model_key='/sax/test/third'),
        timeout=_TIMEOUT,
      )
      traffic.wait_for(10)
    for (key, _), counts in traffic.answers.items():
      self.assertLen(counts, 1)  # Other requests change nothing.
      (answer,) = counts
      self.assertLessEqual(answer.count(',') + 1, 8 if key == _KEY else 4)
    # Neither model waits for the other to be idle.
    counts = collections.Counter()
    for (key, _), answers in traffic.answers.items():
      counts[key] += answers.total()
    self.assertGreater(min(counts.values()), sum(counts.values()) / 10)


if __name__ == '__main__':
  absltest.main()
