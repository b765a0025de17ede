"""Where the replicas of models stand, and why some cannot serve.

Our admin server tells it in its answer to List. Others do not; then the
servers that they name are asked themselves.
"""

from collections.abc import Iterable, Sequence

import grpc

from saxml_ext.client import blocking
from saxml_ext.common import errors
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import common_pb2
from saxml_ext.protobuf import modelet_pb2
from saxml_ext.protobuf import modelet_pb2_grpc

# A server that does not say in this time how it fares does not fare well.
_PATIENCE = 5.0

# (model id, replica)
Row = tuple[str, admin_pb2.Replica]


def of(
    published: Sequence[admin_pb2.PublishedModel], timeout: float
) -> list[Row]:
  """The replicas of each model, and an entry for those that are missing.

  Args:
    published: from the admin server.
    timeout: seconds that asking servers may take.
  """
  asked = _ask(
      {
          address
          for item in published
          if not item.replicas
          for address in item.modelet_addresses
      },
      min(timeout, _PATIENCE),
  )
  rows = []
  for item in published:
    replicas = list(item.replicas)
    if not replicas:
      replicas = [
          _replica(address, asked[address], item.model.model_id)
          for address in item.modelet_addresses
      ]
    wanted = item.model.requested_num_replicas
    if len(item.modelet_addresses) < wanted and all(
        r.address for r in replicas
    ):
      reason = f'{len(item.modelet_addresses)} of {wanted} replicas have one'
      replicas.append(admin_pb2.Replica(reason='no server: ' + reason))
    rows.extend((item.model.model_id, replica) for replica in replicas)
  return rows


def name(replica: admin_pb2.Replica) -> str:
  """What to call the replica's status."""
  if replica.status:
    return common_pb2.ModelStatus.Name(replica.status)
  return 'UNKNOWN' if replica.address else 'MISSING'


_Answer = modelet_pb2.GetStatusResponse | errors.SaxError


def _ask(addresses: Iterable[str], timeout: float) -> dict[str, _Answer]:
  """Asks servers for their status, all at once."""
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


def _replica(address: str, answer: _Answer, model_id: str) -> admin_pb2.Replica:
  if isinstance(answer, errors.SaxError):
    return admin_pb2.Replica(
        address=address, reason=f'{answer.code.name}: {answer.message}'
    )
  for info in answer.models:
    if info.model_key == model_id:
      return admin_pb2.Replica(
          address=address,
          status=info.model_status,
          reason=info.failure_reason,
      )
  return admin_pb2.Replica(
      address=address, reason='the server does not know the model yet'
  )
