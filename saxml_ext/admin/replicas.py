"""How the replicas of a model fare, as `List` and the status page tell it."""

from collections.abc import Iterable

from saxml_ext.admin import held as held_lib
from saxml_ext.admin import modelets
from saxml_ext.admin import state
from saxml_ext.protobuf import admin_pb2


def describe(
    entry: state.Published, holders: Iterable[modelets.Modelet]
) -> list[admin_pb2.Replica]:
  """See `PublishedModel.replicas`.

  Args:
    entry: the model.
    holders: the servers it is assigned to.

  Returns:
    Those servers in that order, others where it failed, what is missing.
  """
  model = entry.model
  result = [
      admin_pb2.Replica(
          address=m.address,
          status=m.held[model.model_id].status,
          reason=m.held[model.model_id].reason,
      )
      for m in holders
  ]
  found, wanted = len(result), model.requested_num_replicas
  listed = {r.address for r in result}
  result += [
      admin_pb2.Replica(
          address=address, status=held_lib.FAILED, reason=failure.reason
      )
      for address, failure in entry.failures.items()
      if address not in listed
  ]
  if found < wanted:
    result.append(
        admin_pb2.Replica(
            reason=f'{found} of {wanted} replicas: no further server has room '
            f'for {model.model_path}'
        )
    )
  return result
