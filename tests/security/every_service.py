"""Runs all services of a cell in one process, each on ports of every kind.

Every kind of caller can thus make every call. Only the lists are loaded from
disk, and the engine is a test engine.
"""

import asyncio
from collections.abc import Mapping
import dataclasses

import grpc

from saxml_ext.admin import controller as controller_lib
from saxml_ext.admin import service as admin_service
from saxml_ext.common import grpc_aio
from saxml_ext.common import grpc_util
from saxml_ext.common.security import access as access_lib
from saxml_ext.common.security import tls
from saxml_ext.groups import follower_streams
from saxml_ext.groups import followers
from saxml_ext.params import gptj
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import admin_pb2_grpc
from saxml_ext.protobuf import group_pb2
from saxml_ext.server import model_server
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.testing import fake_runner
from saxml_ext.server.testing import server_fixture

CELL = '/sax/test'
# This model is published, and loaded on the model server.
MODEL = f'{CELL}/m'
# A follower must also know this text.
EPOCH = 'epoch'
_SILENCE_SECS = 60.0
_LOCAL = '127.0.0.1'


class _Params(gptj.TinyTokenizedFP32):
  """Serving params that are small enough for an engine for tests."""

  INPUT_SEQ_LEN = 8
  BUCKET_KEYS = [8]
  ENABLE_GENERATE_STREAM = True
  TEXT_TO_EMBEDDING_OUTPUT_EMBEDDING_NAME = 'mean'
  TEXT_TO_EMBEDDING_MODEL_METHOD_NAME = 'encode'
  GRADIENT_WRT_INPUT_TENSOR_NAMES = ['embeddings']


class _Goodbye(followers.Listener):
  """A group that ends the stream of each follower."""

  def joined(self, member: followers.Member) -> None:
    member.close()

  def answered(
    self, member: followers.Member, answer: group_pb2.Answer
  ) -> None: ...

  def left(self, member: followers.Member) -> None: ...


@dataclasses.dataclass(frozen=True)
class Ports:
  """The addresses of one server: plain text, TLS and mutual TLS."""

  plain: str
  tls: str
  mutual: str


class EveryService:
  """The services, by the first part of their methods' names.

  Attributes:
    ports: The addresses by service, such as "sax.Admin".
  """

  def __init__(self, server_tls: tls.Settings):
    """Sets the certificates of the ports with TLS."""
    self.ports: dict[str, Ports] = {}
    self._tls = server_tls
    self._admin: grpc.aio.Server | None = None
    self._controller: controller_lib.Controller | None = None

  async def start(self) -> None:
    """Starts the model server and the leader of a group."""
    load = server_fixture.fake_load_fn(_Params, fake_runner.FakeRunner())
    self.model_server = model_server.ModelServer(load, port=0)
    self.ports['model server'] = self._listen(self.model_server._server)
    await self.model_server.start()
    await asyncio.wrap_future(
      self.model_server.models.load(
        MODEL, entry_lib.Spec('test.Params', '/ckpt', {}, {})
      )
    )
    leader = followers.Members(EPOCH, 2, _Goodbye())
    self._group = followers.make_server(leader, 2, _SILENCE_SECS)
    self.ports[follower_streams.SERVICE] = self._listen(self._group)
    self._group.start()

  def methods(self) -> tuple[str, ...]:
    """Returns the methods of the loaded model."""
    return self.model_server.models.serving(MODEL).model.settings.methods

  async def restrict(
    self,
    access: access_lib.Access,
    owner_acl: str,
    model_acls: Mapping[str, str],
  ) -> None:
    """Replaces the lists and the ACLs.

    Args:
      access: The lists.
      owner_acl: The ACL of the published model's admins.
      model_acls: The ACLs of the loaded model, by data method.
    """
    access_lib.use(access)
    self.model_server.models.set_acls(MODEL, model_acls)
    await self._stop_admin()
    self._model = admin_pb2.Model(
      model_id=MODEL,
      model_path='p.A',
      checkpoint_path='None',
      admin_acl=owner_acl,
    )
    self._controller = controller = controller_lib.Controller(
      admin_pb2.State(models=[self._model]),
      lambda state: None,
      'id',
      lambda: True,
    )

    async def leading() -> controller_lib.Controller:
      return controller

    self._admin = grpc_aio.make_server()
    admin_pb2_grpc.add_AdminServicer_to_server(
      admin_service.AdminService(CELL, leading, access),
      self._admin,
    )
    self.ports['sax.Admin'] = self._listen(self._admin)
    await self._admin.start()

  async def publish_again(self) -> None:
    """Publishes the model if a caller has unpublished it."""
    assert self._controller is not None
    if not self._controller.entries():
      await self._controller.publish(self._model)

  async def stop(self) -> None:
    """Stops all services."""
    access_lib.use(access_lib.Access())
    await self._stop_admin()
    await self.model_server.stop(0)
    await asyncio.to_thread(self._group.stop(None).wait)

  def _listen(self, server: grpc.Server | grpc.aio.Server) -> Ports:
    ports = []
    for settings in (
      tls.Settings(),
      dataclasses.replace(self._tls, require_client_certs=False),
      self._tls,
    ):
      tls.configure(settings)
      ports.append(f'{_LOCAL}:{grpc_util.listen(server, 0, _LOCAL)}')
    return Ports(*ports)

  async def _stop_admin(self) -> None:
    if self._admin and self._controller:
      await self._admin.stop(0)
      await self._controller.close()
