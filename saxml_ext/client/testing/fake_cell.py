"""A cell for tests: real gRPC on loopback with canned answers."""

import collections
import os
import threading
import time

import grpc
from grpc_health.v1 import health_pb2
from grpc_health.v1 import health_pb2_grpc

from saxml_ext.common import cell as cell_files
from saxml_ext.common import errors
from saxml_ext.common import grpc_util
from saxml_ext.common import net
from saxml_ext.common.testing import threaded_server
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import admin_pb2_grpc
from saxml_ext.protobuf import common_pb2
from saxml_ext.protobuf import lm_pb2
from saxml_ext.protobuf import lm_pb2_grpc
from saxml_ext.protobuf import modelet_pb2
from saxml_ext.protobuf import modelet_pb2_grpc

CELL = '/sax/test'
MODEL = '/sax/test/m'
# The timeout, in seconds, for events that normally take no time. It is long
# because a machine may be slow.
PATIENCE = 300


class Server:
  """A gRPC servicer on a loopback port."""

  def __init__(self, add, servicer, wrap_text: bool, port: int = 0):
    self._server = threaded_server.make_server(32, wrap_text)
    add(servicer, self._server)
    self.port = grpc_util.listen(self._server, port, '127.0.0.1')
    self.address = net.join_host_port('127.0.0.1', self.port)
    self._server.start()

  def stop(self) -> None:
    self._server.stop(None).wait()


class FakeAdmin(admin_pb2_grpc.AdminServicer):
  """An admin server that keeps models and addresses as the test sets them."""

  def __init__(
    self,
    root: str,
    server_id: str = 'a',
    models: dict[str, admin_pb2.PublishedModel] | None = None,
  ):
    # Set before the server starts. Otherwise a waiting client might miss them.
    self.models = models or {}
    # `List` reports these replicas for a model that is published later.
    self.replicas_of_new: list[admin_pb2.Replica] = []
    self.requests = []
    self.stats = admin_pb2.StatsResponse()
    self.busy = 0  # This many calls fail with UNAVAILABLE.
    self._id = server_id
    self._log: dict[str, list[admin_pb2.WatchResult.Mutation]] = (
      collections.defaultdict(list)
    )
    self._changed = threading.Condition()
    self._watched = -1  # The largest position of a client's request.
    self._server = Server(
      admin_pb2_grpc.add_AdminServicer_to_server, self, wrap_text=True
    )
    self.address = self._server.address
    cell_files.write_location(
      root, CELL, admin_pb2.Location(location=self.address)
    )

  def stop(self) -> None:
    self._server.stop()

  def wait_for_watch(self, seqno: int = 0) -> None:
    """Waits until a client watches for changes after a sequence number."""
    with self._changed:
      if not self._changed.wait_for(lambda: self._watched >= seqno, PATIENCE):
        raise TimeoutError(f'no client asked for changes from {seqno} on')

  def pause(self) -> None:
    """Pauses, so that other threads have time to act."""
    time.sleep(0.01)

  def add_address(self, model_id: str, address: str) -> None:
    self._append(model_id, admin_pb2.WatchResult.Mutation(addition=address))

  def remove_address(self, model_id: str, address: str) -> None:
    self._append(model_id, admin_pb2.WatchResult.Mutation(deletion=address))

  def _append(self, model_id, mutation) -> None:
    with self._changed:
      self._log[model_id].append(mutation)
      self._changed.notify_all()

  def _get(self, model_id: str) -> admin_pb2.PublishedModel:
    if model_id not in self.models:
      raise errors.NotFound(f'model {model_id} not found')
    return self.models[model_id]

  def _record(self, request) -> None:
    self.requests.append(request)
    if self.busy:
      self.busy -= 1
      raise errors.Unavailable('busy')

  def Publish(self, request, context):
    self._record(request)
    model_id = request.model.model_id
    if model_id in self.models:
      raise errors.AlreadyExists(f'model {model_id} already exists')
    self.models[model_id] = admin_pb2.PublishedModel(
      model=request.model, replicas=self.replicas_of_new
    )
    return admin_pb2.PublishResponse()

  def Unpublish(self, request, context):
    self._record(request)
    self._get(request.model_id)
    with self._changed:
      del self.models[request.model_id]
      self._changed.notify_all()
    return admin_pb2.UnpublishResponse()

  def Update(self, request, context):
    self._record(request)
    self._get(request.model.model_id).model.CopyFrom(request.model)
    return admin_pb2.UpdateResponse()

  def List(self, request, context):
    self._record(request)
    if request.model_id:
      models = [self._get(request.model_id)]
    else:
      models = list(self.models.values())
    return admin_pb2.ListResponse(published_models=models)

  def Stats(self, request, context):
    self._record(request)
    return self.stats

  def WaitForReady(self, request, context):
    self._record(request)
    self._get(request.model_id)
    while len(self._log[request.model_id]) < request.num_replicas:
      time.sleep(0.01)
      if not context.is_active():
        break
    return admin_pb2.WaitForReadyResponse()

  def WatchLoc(self, request, context):
    seqno = request.seqno if request.admin_server_id == self._id else 0
    self._get(request.model_id)
    result = admin_pb2.WatchResult()
    with self._changed:
      self._watched = max(self._watched, seqno)
      self._changed.notify_all()
      log = self._log[request.model_id]
      while context.is_active():
        if request.model_id not in self.models:
          result.has_fullset = True
          break
        if len(log) > seqno:
          result.changelog.extend(log[seqno:])
          result.next_seqno = len(log)
          break
        self._changed.wait(0.05)
    return admin_pb2.WatchLocResponse(result=result, admin_server_id=self._id)


class FakeModelServer(
  lm_pb2_grpc.LMServiceServicer,
  modelet_pb2_grpc.ModeletServicer,
  health_pb2_grpc.HealthServicer,
):
  """A model server that takes its answer from the prompt.

  A prompt "err:CODE" fails. "flaky:CODE:N" fails the first N times. "full:S:N"
  does so too, with a retry delay of S seconds. "sleep:S" takes S seconds.
  "wait:" takes until `gate` is set. Any other text is echoed. Answers in
  `texts` and `streams` take precedence.
  """

  def __init__(self, port: int = 0):
    self.requests = []
    self.texts: dict[str, list[tuple[str, float]]] = {}
    self.streams: dict[str, list] = {}
    self.cancelled = threading.Event()
    self.probed = threading.Event()
    self.gate = threading.Event()
    self.gate.set()
    self.status = common_pb2.ModelStatus.LOADED
    self.reason = ''
    self._failures = collections.Counter()
    self._server = Server(_add_services, self, wrap_text=False, port=port)
    self.address = self._server.address
    self.port = self._server.port

  def stop(self) -> None:
    self._server.stop()

  def forget(self) -> None:
    """Resets the counts of failures."""
    self._failures.clear()

  def _behave(self, text: str, context) -> None:
    kind, _, rest = text.partition(':')
    if kind == 'err':
      raise errors.from_code(grpc.StatusCode[rest], f'injected {rest}')
    if kind == 'flaky':
      code, _, times = rest.partition(':')
      self._failures[text] += 1
      if self._failures[text] <= int(times):
        raise errors.from_code(
          grpc.StatusCode[code], f'injected flaky {self._failures[text]}'
        )
    if kind == 'full':
      seconds, _, times = rest.partition(':')
      self._failures[text] += 1
      if self._failures[text] <= int(times):
        raise errors.ResourceExhausted('injected full', float(seconds))
    if kind == 'sleep':
      time.sleep(float(rest))
    if kind in ('wait', 'endless'):
      context.add_callback(self._note_end)
    if kind == 'wait':
      self.gate.wait(30)

  def _note_end(self) -> None:
    if not self.gate.is_set():
      self.cancelled.set()

  def Generate(self, request, context):
    self.requests.append(request)
    self._behave(request.text, context)
    texts = self.texts.get(request.text, [(request.text, -1.0)])
    return lm_pb2.GenerateResponse(
      texts=[lm_pb2.DecodedText(text=t, score=s) for t, s in texts]
    )

  def GenerateStream(self, request, context):
    self.requests.append(request)
    self._behave(request.text, context)
    for message in self.streams.get(request.text, []):
      if isinstance(message, errors.SaxError):
        raise message
      yield message

  def Score(self, request, context):
    self.requests.append(request)
    logp = [-1.0 * (i + 1) for i in range(len(request.suffix))]
    return lm_pb2.ScoreResponse(logp=logp)

  def Embed(self, request, context):
    self.requests.append(request)
    return lm_pb2.EmbedResponse(
      embedding=[float(word) for word in request.text.split()]
    )

  def Gradient(self, request, context):
    self.requests.append(request)
    return lm_pb2.GradientResponse(
      score=[-3.5],
      gradients={'x': lm_pb2.GradientResponse.Gradient(values=[0.0, 0.125])},
    )

  def GetStatus(self, request, context):
    reason = self.reason if request.include_failure_reasons else ''
    response = modelet_pb2.GetStatusResponse()
    response.models.add(
      model_key=MODEL, model_status=self.status, failure_reason=reason
    )
    return response

  def Check(self, request, context):
    self.probed.set()
    return health_pb2.HealthCheckResponse()

  def Save(self, request, context):
    self.requests.append(request)
    return modelet_pb2.SaveResponse()

  def Export(self, request, context):
    self.requests.append(request)
    return modelet_pb2.ExportResponse()


def _add_services(servicer: FakeModelServer, server: grpc.Server) -> None:
  lm_pb2_grpc.add_LMServiceServicer_to_server(servicer, server)
  modelet_pb2_grpc.add_ModeletServicer_to_server(servicer, server)
  health_pb2_grpc.add_HealthServicer_to_server(servicer, server)


class FakeCell:
  """A cell with one admin server and one published model."""

  def __init__(self, directory: str):
    self.root = os.path.join(directory, 'root')
    config = admin_pb2.Config(fs_root=directory, admin_acl='acl/all')
    cell_files.write_config(self.root, CELL, config)
    self.admin = FakeAdmin(self.root)
    self._servers = []
    self.publish(MODEL)

  def publish(
    self, model_id: str, replicas: int = 1
  ) -> admin_pb2.PublishedModel:
    """Publishes a model without assigning a server to it."""
    self.admin.models[model_id] = admin_pb2.PublishedModel(
      model=admin_pb2.Model(
        model_id=model_id,
        model_path='p.A',
        checkpoint_path='None',
        requested_num_replicas=replicas,
        overrides={'BATCH_SIZE': '4'},
      )
    )
    return self.admin.models[model_id]

  def add_server(self, model_id: str = MODEL, port: int = 0) -> FakeModelServer:
    """Starts a model server and adds it to a model's replicas."""
    server = FakeModelServer(port)
    self._servers.append(server)
    if model_id in self.admin.models:
      self.admin.models[model_id].modelet_addresses.append(server.address)
    self.admin.add_address(model_id, server.address)
    return server

  def stop(self) -> None:
    self.admin.stop()
    for server in self._servers:
      server.stop()
