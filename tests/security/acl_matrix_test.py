"""Tests which callers each call of every service admits.

The calls are those of the services' descriptors. A new call without a line in
`_FOR` fails the test, so that its callers are always decided.
"""

import asyncio
from collections.abc import Iterator
import dataclasses
import importlib
import os
import pkgutil
from typing import Any
import unittest

from absl.testing import absltest
from google.protobuf import descriptor
from google.protobuf import message_factory
import grpc

from saxml_ext import protobuf
from saxml_ext.common import cell as cell_lib
from saxml_ext.common import grpc_util
from saxml_ext.common.security import access
from saxml_ext.common.security import acl_file
from saxml_ext.common.security import tls
from saxml_ext.common.security.testing import cell_certs
from saxml_ext.groups import follower_streams
from saxml_ext.protobuf import admin_pb2
from tests.security import every_service

_TIMEOUT = 60
_DENIED = grpc.StatusCode.PERMISSION_DENIED

# The kinds of callers that a call may admit.
ANYBODY = 'anybody who may connect'
CELL_ADMINS = 'admins of the cell'
MODEL_ADMINS = 'admins of the cell, or of the model'
SERVERS = 'servers of the cell'
USERS = 'users of the model'

_FOR = {
  'sax.Admin/Publish': CELL_ADMINS,
  'sax.Admin/Update': MODEL_ADMINS,
  'sax.Admin/Unpublish': MODEL_ADMINS,
  'sax.Admin/List': ANYBODY,
  'sax.Admin/Stats': ANYBODY,
  'sax.Admin/WatchLoc': ANYBODY,
  'sax.Admin/WaitForReady': ANYBODY,
  'sax.Admin/Join': SERVERS,
  'sax.Modelet/Load': SERVERS,
  'sax.Modelet/UpdateLoaded': SERVERS,
  'sax.Modelet/Unload': SERVERS,
  'sax.Modelet/Export': SERVERS,
  'sax.Modelet/Save': SERVERS,
  'sax.Modelet/WakeUp': SERVERS,
  'sax.Modelet/GetStatus': ANYBODY,
  'sax.server.lm.LMService/Score': USERS,
  'sax.server.lm.LMService/Generate': USERS,
  'sax.server.lm.LMService/GenerateStream': USERS,
  'sax.server.lm.LMService/Embed': USERS,
  'sax.server.lm.LMService/Gradient': USERS,
  'sax.completion.Completion/Complete': USERS,
  'sax.completion.Completion/Tokenize': USERS,
  'sax.completion.Completion/Detokenize': USERS,
  'sax.completion.Completion/Describe': USERS,
  f'{follower_streams.SERVICE}/{follower_streams.METHOD}': SERVERS,
}
_NOT_HERE = (
  'sax.server.audio.AudioService/',
  'sax.server.custom.CustomService/',
  'sax.server.multimodal.MultimodalService/',
  'sax.server.vision.VisionService/',
)
_DATA_METHODS = (
  'lm.score',
  'lm.generate',
  'lm.generate_stream',
  'lm.embed',
  'lm.gradient',
)
# The requests of calls that would reject an empty request before any check of
# the caller.
_MODEL = {
  'model_id': every_service.MODEL,
  'model_path': 'p.A',
  'checkpoint_path': 'None',
}
_REQUESTS: dict[str, dict[str, Any]] = {
  'sax.Admin/Publish': {'model': _MODEL},
  # An update replaces the whole model, including the list of its admins.
  'sax.Admin/Update': {'model': _MODEL | {'admin_acl': 'acl/owners'}},
  'sax.Admin/Unpublish': {'model_id': every_service.MODEL},
  'sax.Admin/Join': {'address': 'x', 'model_server': {}, 'leaving': 'x'},
}


@dataclasses.dataclass(frozen=True)
class _Caller:
  """A caller.

  Attributes:
    certificate: The file stem of the certificate; None for a port with plain
      text, '' for no certificate.
    verified: The name that a server must find out; '' for none.
    claim: The name of the user that it claims to call for.
  """

  certificate: str | None
  verified: str
  claim: str | None = None


_CALLERS = {
  'plain text': _Caller(None, ''),
  'plain text that claims a name': _Caller(None, '', 'user'),
  'TLS without a name': _Caller('', ''),
  'TLS without a name that claims one': _Caller('', '', 'user'),
  'admin': _Caller('admin', 'admin'),
  'owner': _Caller('owner', 'owner'),
  'server': _Caller('server', 'server'),
  'user': _Caller('user', 'user'),
  'stranger': _Caller('stranger', 'stranger'),
  'proxy for itself': _Caller('proxy', 'proxy'),
  'proxy for nobody': _Caller('proxy', '', ''),
  'proxy for a user': _Caller('proxy', 'user', 'user'),
  'proxy for an admin': _Caller('proxy', 'admin', 'admin'),
  'proxy for a stranger': _Caller('proxy', 'stranger', 'stranger'),
  'stranger that claims a name': _Caller('stranger', '', 'user'),
  'user that claims another name': _Caller('user', '', 'admin'),
}

# The members of each list, if there are lists.
_LISTS = (
  '{"acl/admins": ["admin"], "acl/owners": ["owner"],'
  ' "acl/servers": ["server"], "acl/users": ["user"]}'
)
_MAY = {
  'admin': {CELL_ADMINS, MODEL_ADMINS},
  'owner': {MODEL_ADMINS},
  'server': {SERVERS},
  'user': {USERS},
}


@dataclasses.dataclass(frozen=True)
class _State:
  """The setup of a cell.

  Attributes:
    file: The file of its lists; None if there is none.
    names: True if the objects name lists.
    works: True if these lists exist.
  """

  file: str | None
  names: bool = True
  works: bool = False


_STATES = {
  'lists': _State(_LISTS, works=True),
  'unknown lists': _State('{"acl/servers": [], "acl/others": ["user"]}'),
  'a broken file': _State(_LISTS[:-1]),
  'no file': _State(None),
  'nothing set up': _State(None, names=False),
}


def _methods(
  here: bool = True,
) -> Iterator[tuple[str, descriptor.MethodDescriptor]]:
  """Yields the path and descriptor of each method that is (not) served here."""
  for module in pkgutil.iter_modules(protobuf.__path__):
    if module.name.endswith('_pb2'):
      proto = importlib.import_module(f'saxml_ext.protobuf.{module.name}')
      for service in proto.DESCRIPTOR.services_by_name.values():
        for method in service.methods:
          path = f'{service.full_name}/{method.name}'
          if path.startswith(_NOT_HERE) != here:
            yield path, method


def _expected(state: _State, who: _Caller, rule: str) -> bool:
  """Returns True if a caller may make a call, by the rules above alone."""
  if rule == ANYBODY or not state.names:
    return True
  return state.works and rule in _MAY.get(who.verified, ())


class AclMatrixTest(unittest.IsolatedAsyncioTestCase, absltest.TestCase):
  async def asyncSetUp(self):
    asyncio.get_running_loop().set_debug(False)
    self.addCleanup(tls.configure, None)
    self.addCleanup(access.trust, ())
    self.certs = cell_certs.CellCerts(self.create_tempdir().full_path)
    self.settings = {
      stem: self.certs.make(stem)
      for stem in {who.certificate for who in _CALLERS.values()}
      if stem
    }
    self.settings[''] = tls.Settings(
      ca_file=self.certs.ca_file, server_name=cell_certs.SERVER_NAME
    )
    access.trust(['proxy'])
    self.services = every_service.EveryService(
      self.certs.make('cell', cell_certs.SERVER_NAME)
    )
    await self.services.start()
    self.addAsyncCleanup(self.services.stop)
    self._channels: dict[tuple[str, str | None], grpc.aio.Channel] = {}
    self.root = self.create_tempdir().full_path

  async def asyncTearDown(self):
    for channel in self._channels.values():
      await channel.close()

  async def set_up(self, state: _State) -> None:
    admins = 'acl/admins' if state.names else 'acl/all'
    cell_lib.write_config(
      self.root,
      every_service.CELL,
      admin_pb2.Config(fs_root='/f', admin_acl=admins),
    )
    path = acl_file.path_of(self.root, every_service.CELL)
    if os.path.exists(path):
      os.remove(path)
    if state.file is not None:
      with open(path, 'w', encoding='ascii') as f:
        f.write(state.file)
    users = dict.fromkeys(_DATA_METHODS, 'acl/users') if state.names else {}
    await self.services.restrict(
      access.Access.from_cell(self.root, every_service.CELL),
      'acl/owners' if state.names else '',
      users,
    )

  def channel(self, service: str, who: _Caller) -> grpc.aio.Channel:
    ports = self.services.ports
    server = ports.get(service, ports['model server'])
    address = server.mutual if who.certificate else server.tls
    if who.certificate is None:
      address = server.plain
    key = address, who.certificate
    if key not in self._channels:
      if who.certificate is None:
        tls.configure(tls.Settings())
      else:
        tls.configure(self.settings[who.certificate])
      self._channels[key] = grpc_util.aio_channel(
        address, (('grpc.use_local_subchannel_pool', 1),)
      )
    return self._channels[key]

  async def call(
    self, path: str, method: descriptor.MethodDescriptor, who: _Caller
  ) -> grpc.StatusCode:
    """Makes a call; returns its status code."""
    if method.client_streaming:
      return await self.follow(who)
    channel = self.channel(method.containing_service.full_name, who)
    kind = channel.unary_unary
    if method.server_streaming:
      kind = channel.unary_stream
    make = message_factory.GetMessageClass(method.input_type)
    fields = _REQUESTS.get(path, {})
    if 'model_key' in method.input_type.fields_by_name:
      fields = {'model_key': every_service.MODEL}
    if method.name in ('Load', 'UpdateLoaded', 'Unload'):
      fields = {}  # The request has no effect, but shows who is admitted.
    request = make(**fields).SerializeToString()
    metadata = []
    if who.claim is not None:
      metadata.append((access.METADATA_KEY, who.claim))
    call = kind(f'/{path}')(request, metadata=metadata, timeout=_TIMEOUT)
    return await call.code()

  async def follow(self, who: _Caller) -> grpc.StatusCode:
    """Makes the only call with streams both ways; returns its status code."""
    channel = self.channel(follower_streams.SERVICE, who)
    metadata = [
      (follower_streams.EPOCH, every_service.EPOCH),
      (follower_streams.PROCESS, '1'),
      (follower_streams.HOST, 'h'),
    ]
    if who.claim is not None:
      metadata.append((access.METADATA_KEY, who.claim))
    call = channel.stream_stream(
      f'/{follower_streams.SERVICE}/{follower_streams.METHOD}'
    )(metadata=metadata, timeout=_TIMEOUT)
    return await call.code()

  async def test_every_pair_of_caller_and_call(self):
    wrong, calls = [], 0
    # A model without a method rejects it for everybody, before any check of the
    # caller.
    self.assertContainsSubset(_DATA_METHODS, self.services.methods())
    for title, state in _STATES.items():
      await self.set_up(state)
      for name, who in _CALLERS.items():
        for path, method in _methods():
          code = await self.call(path, method, who)
          calls += 1
          if (code is not _DENIED) != _expected(state, who, _FOR[path]):
            wrong.append(f'{title}: {path} by {name}: {code.name}')
          await self.services.publish_again()
    self.assertEqual(wrong, [])
    self.assertGreater(calls, 1000)

  async def test_unlisted_methods_are_not_served(self):
    await self.set_up(_STATES['nothing set up'])
    for path, method in _methods(here=False):
      code = await self.call(path, method, _CALLERS['admin'])
      self.assertIs(code, grpc.StatusCode.UNIMPLEMENTED, path)


if __name__ == '__main__':
  absltest.main()
