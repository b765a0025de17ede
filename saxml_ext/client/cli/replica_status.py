"""Finds the state of replicas, and the reason why a replica cannot serve.

Our admin server reports both in its answer to List. Other admin servers do not,
so then the model servers are asked directly.
"""

from collections.abc import Iterable, Sequence

import grpc

from saxml_ext.client import sax
from saxml_ext.client.transport import admin_client
from saxml_ext.client.transport import blocking
from saxml_ext.common import errors
from saxml_ext.protobuf import modelet_pb2
from saxml_ext.protobuf import modelet_pb2_grpc

# A server that does not report its status within this many seconds counts as
# unhealthy.
_PATIENCE = 5.0

# A (model id, replica) pair.
Row = tuple[str, sax.Replica]


def collect(details: Sequence[sax.ModelDetail], timeout: float) -> list[Row]:
  """Returns the replicas of each model, with an entry for each missing one.

  Args:
    details: The models, as the admin server lists them.
    timeout: The timeout for asking the servers, in seconds.
  """
  statuses = _ask(
    {
      address
      for detail in details
      if not detail.replicas
      for address in detail.addresses
    },
    min(timeout, _PATIENCE),
  )
  rows: list[Row] = []
  for detail in details:
    replicas = list(detail.replicas)
    if not replicas:
      replicas = [
        _replica(address, statuses[address], detail.model_id)
        for address in detail.addresses
      ]
    active, expected = detail.active_replicas, detail.max_replicas
    if active < expected and all(r.address for r in replicas):
      reason = f'only {active} of {expected} replicas have a server'
      replicas.append(sax.Replica('', admin_client.MISSING, reason))
    rows.extend((detail.model_id, replica) for replica in replicas)
  return rows


def missing(detail: sax.ModelDetail) -> str:
  """Returns why replicas of a model have no server, or "" if unknown."""
  reasons = [r.reason for r in detail.replicas if not r.address and r.reason]
  return f'{detail.model_id}: {"; ".join(reasons)}' if reasons else ''


_Answer = modelet_pb2.GetStatusResponse | errors.SaxError


def _ask(addresses: Iterable[str], timeout: float) -> dict[str, _Answer]:
  """Asks servers for their status, all at the same time."""
  request = modelet_pb2.GetStatusRequest(include_failure_reasons=True)
  calls = {}
  for address in addresses:
    connection = blocking.TRANSPORT.connections.get(address)
    stub = connection.stub(modelet_pb2_grpc.ModeletStub)
    calls[address] = stub.GetStatus.future(request, timeout=timeout)
  answers = {}
  for address, call in calls.items():
    try:
      answers[address] = call.result()
    except grpc.RpcError as e:
      answers[address] = errors.from_rpc_error(e)
  return answers


def _replica(address: str, answer: _Answer, model_id: str) -> sax.Replica:
  if isinstance(answer, errors.SaxError):
    reason = f'{answer.code.name}: {answer.message}'
    return sax.Replica(address, admin_client.UNKNOWN, reason)
  for info in answer.models:
    if info.model_key == model_id:
      return admin_client.replica(
        address, info.model_status, info.failure_reason
      )
  reason = 'the server has not received the model yet'
  return sax.Replica(address, admin_client.UNKNOWN, reason)
