"""Loads the recorded calls, and lists the allowed differences of a replay.

Every recorded call has a replay. Calls that were recorded at an admin server
are sent to ours (replay_admin_test). Calls of a client are made by our client
(replay_client_test). Calls of an admin server are made by our admin server
(replay_modelet_test).
"""

import dataclasses
import importlib
import re
from typing import Any

from google.protobuf import message
from google.protobuf import text_format
import grpc

from saxml_ext.common import errors
from saxml_ext.common.testing import golden

ADMIN = 'upstream admin (Go)'
CLIENT = 'upstream Go client'

# These texts come from the gRPC library of the recorded callers, not from the
# server.
CALLERS_TEXTS = frozenset(
  {
    'Deadline Exceeded',
    'Stream removed (Deadline Exceeded)',
    'context deadline exceeded',
  }
)

_WRAPPED = re.compile(r'rpc error: code = \w+ desc = (\w+)$')
_MODULES = {
  'sax.Admin': 'admin',
  'sax.Modelet': 'modelet',
  'sax.server.lm.LMService': 'lm',
}


def code_in(text: str) -> grpc.StatusCode | None:
  """Returns the status code at the end of an error's text."""
  match = _WRAPPED.search(text)
  if not match:
    return None
  [code] = [
    c for c in grpc.StatusCode if errors.camel_case(c) == match.group(1)
  ]
  return code


@dataclasses.dataclass(frozen=True)
class Row:
  """A recorded call.

  Attributes:
    number: The number of the row in the file.
    service: The name of the service, such as "sax.Admin".
    method: The name of the method, such as "Publish".
    step: The step of the recording.
    caller: The program that made the call.
    callee: The program that received the call.
    request: The request message; None for an unknown method.
    responses: The response messages; empty after an error.
    raw_code: The status code on the wire.
    details: The text of the error.
  """

  number: int
  service: str
  method: str
  step: str
  caller: str
  callee: str
  request: message.Message | None
  responses: tuple[message.Message, ...]
  raw_code: grpc.StatusCode
  details: str

  @property
  def code(self) -> grpc.StatusCode:
    """The status code that the server meant.

    Old servers send UNKNOWN and put the code into the text.
    """
    if code := code_in(self.details):
      return code
    if self.details == 'context deadline exceeded':
      return grpc.StatusCode.DEADLINE_EXCEEDED
    return self.raw_code

  def name(self) -> str:
    return f'{self.number} {self.method}: {self.step}'


def _message(kind: Any, data_hex: str) -> message.Message:
  return kind.FromString(bytes.fromhex(data_hex))


def _row(number: int, raw: dict[str, Any]) -> Row:
  service, method = raw['method'].strip('/').split('/')
  request, responses = None, ()
  if service in _MODULES:
    module = importlib.import_module(
      f'saxml_ext.protobuf.{_MODULES[service]}_pb2'
    )
    descriptor = module.DESCRIPTOR.services_by_name[service.split('.')[-1]]
    if method in descriptor.methods_by_name:
      # Generate and GenerateStream have the same request type.
      rpc = descriptor.methods_by_name[method]
      request_type = getattr(module, rpc.input_type.name)
      response_type = getattr(module, rpc.output_type.name)
      request = _message(request_type, raw['request_hex'])
      hexes = raw.get('responses_hex', [])
      if raw.get('response_hex') is not None:
        hexes = [raw['response_hex']]
      responses = tuple(_message(response_type, text) for text in hexes)
  return Row(
    number,
    service,
    method,
    raw['step'],
    raw['caller'],
    raw['callee'],
    request,
    responses,
    grpc.StatusCode[raw['code']],
    raw['details'] or '',
  )


def rows() -> list[Row]:
  """Returns every recorded call."""
  return [
    _row(number, raw)
    for number, raw in enumerate(golden.load('rpc_pairs.json'))
  ]


def renamed(value: message.Message, names: dict[str, str]) -> message.Message:
  """Returns a copy with other texts; `names` maps old to new names."""
  text = text_format.MessageToString(value)
  for old, new in names.items():
    text = text.replace(f'"{old}"', f'"{new}"')
  return text_format.Parse(text, type(value)())
