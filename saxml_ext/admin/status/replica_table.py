"""Describes the replicas of a model, for `List` and the status page."""

from collections.abc import Sequence

from saxml_ext.admin.leadership import cell_state
from saxml_ext.admin.modelet import held as held_lib
from saxml_ext.admin.modelet import members as members_lib
from saxml_ext.admin.modelet import modelets
from saxml_ext.protobuf import admin_pb2

_BACK = 'It gets the model again if it comes back soon'
# The default assigner gives each server one model, as stock Sax does.
_REMEDIES = (
  '. By default, a server takes one model. Start another model server,'
  ' unpublish a model, or start the admin server with'
  ' --sax_admin_exp_assigner to place several models by memory'
)


def describe(
  entry: cell_state.Published,
  holders: Sequence[modelets.Modelet],
  members: members_lib.Members,
) -> list[admin_pb2.Replica]:
  """Returns the rows of `PublishedModel.replicas`.

  Args:
    entry: The model.
    holders: The servers to which it is assigned.
    members: All servers of the cell.

  Returns:
    A row for each of these servers, in that order, and for each other server on
    which the model failed. If servers are missing, there are more rows: one for
    each lost server that had the model, and one without address that gives the
    reason.
  """
  model = entry.model
  hosts = {m.address: m.hosts for m in members.all(lost_too=True)}
  result = [
    admin_pb2.Replica(
      address=m.address,
      status=m.held[model.model_id].status,
      reason=m.held[model.model_id].reason,
      hosts=m.hosts,
    )
    for m in holders
  ]
  listed = {r.address for r in result}
  result += [
    admin_pb2.Replica(
      address=address,
      status=held_lib.FAILED,
      reason=failure.reason,
      hosts=hosts.get(address, ()),
    )
    for address, failure in entry.failures.items()
    if address not in listed
  ]
  if len(holders) < model.requested_num_replicas:
    # Clients wait for a server that is being restarted.
    result += [
      admin_pb2.Replica(address=m.address, reason=_why_lost(m), hosts=m.hosts)
      for m in members.all(lost_too=True)
      if m.lost and model.model_id in m.former
    ]
    result.append(
      admin_pb2.Replica(
        reason=f'{len(holders)} of {model.requested_num_replicas} replicas: '
        + _why_missing(model, members)
      )
    )
  return result


def _why_lost(modelet: modelets.Modelet) -> str:
  if modelet.left:
    return f'the server has left ({modelet.left}). {_BACK}'
  if modelet.hosts:
    # A group reports its failed hosts through process 0. It did not report, so
    # process 0 itself failed.
    return f'host {modelet.hosts[0]} (process 0) is lost. {_BACK}'
  return f'the server is lost. {_BACK}'


def _why_missing(model: admin_pb2.Model, members: members_lib.Members) -> str:
  if not members.all(lost_too=True):
    return 'no model server has joined the cell'
  path = model.model_path
  if unknown := members_lib.explain_unknown(path, members.servable_paths()):
    return unknown
  able = [m for m in members.all() if path in m.paths]
  if not able:
    return f'every model server that can serve {path} is lost'
  holders = sum(model.model_id in m.held for m in able)
  occupied = sum(bool(m.held) and model.model_id not in m.held for m in able)
  counts = [
    f'{number} {what}'
    for number, what in (
      (holders, 'have this model'),
      (occupied, 'have other models'),
      (len(able) - holders - occupied, 'are idle'),
    )
    if number
  ]
  return (
    f'no further server has room for {path}. Of {len(able)} that can serve'
    f' it, {" and ".join(counts)}{_REMEDIES if occupied else ""}'
  )
