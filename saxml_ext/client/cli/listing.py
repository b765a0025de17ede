"""Implements the saxutil commands that only read: ls, stats, wait, watch."""

from collections.abc import Sequence
import random
import time

from saxml_ext.client import sax
from saxml_ext.client.cli import command
from saxml_ext.client.cli import go_flags
from saxml_ext.client.cli import replica_status
from saxml_ext.client.cli import text_table
from saxml_ext.client.transport import admin_client
from saxml_ext.client.transport import options as options_lib
from saxml_ext.common import cell as cell_files
from saxml_ext.common import errors
from saxml_ext.common import ids

# The timeout, in seconds, for finding out why replicas are not ready.
_LOOK_SECONDS = 2.0
# `wait` reports the state of the replicas at this interval, in seconds.
_REPORT_SECONDS = 10.0
# By default, `wait` gives loading replicas this many seconds. Reading a large
# model from a slow disk and compiling it takes less.
_LOADING_SECONDS = 1800.0

_CSV = go_flags.Flag('csv', False, 'Print comma-separated values.')


def _print(
  header: Sequence[str], rows: Sequence[Sequence[str]], as_csv: bool
) -> None:
  if not as_csv:
    print(text_table.render(header, rows), end='')
    return
  print('# ' + ','.join(header))
  for row in rows:
    print(','.join(row))


def _list_cells(args: go_flags.Parsed) -> None:
  cells = cell_files.list_cells(admin_client.root())
  rows = [(str(i), cell.removeprefix('/sax/')) for i, cell in enumerate(cells)]
  _print(['#', 'Cell'], rows, args['csv'])


def _list_cell(
  context: command.Context, cell: str, args: go_flags.Parsed
) -> None:
  details = sax.ListAllDetails(cell, context.admin_options())
  details.sort(key=lambda detail: detail.model_id)
  header = ['#', 'Model ID']
  rows = [
    [str(i), detail.model_id.removeprefix(cell + '/')]
    for i, detail in enumerate(details)
  ]
  if args['details'] and 'details' in args.given:
    header.append('Methods')
    for row, detail in zip(rows, details):
      row.append(', '.join(detail.method_names))
  _print(header, rows, args['csv'])
  _print_status(context, details, args)


def _print_status(
  context: command.Context,
  details: Sequence[sax.ModelDetail],
  args: go_flags.Parsed,
) -> None:
  """Prints the replicas that do not serve, the reasons, and groups of hosts.

  With -status, it prints all replicas.

  Programs that parse the other tables do not expect this one. It therefore
  comes last, and in CSV it appears only on request.
  """
  is_asked_for = 'status' in args.given
  if not args['status'] or (args['csv'] and not is_asked_for):
    return
  rows = [
    row
    for row in replica_status.collect(details, context.remaining())
    if is_asked_for or row[1].hosts or row[1].status != admin_client.LOADED
  ]
  if rows or is_asked_for:
    _print_replicas(rows, args['csv'])


def _print_replicas(rows: Sequence[replica_status.Row], as_csv: bool) -> None:
  """Prints one row per replica, with the hosts if any replica is a group."""
  header = ['Model', 'Replica', 'Status', 'Reason']
  has_hosts = any(replica.hosts for _, replica in rows)
  cells = []
  for model_id, replica in rows:
    # In CSV, a comma would end the value and a newline the row.
    reason = ' '.join(replica.reason.split())
    reason = reason.replace(',', ';') if as_csv else reason
    model = ids.parse_model_id(model_id).model
    hosts = [_hosts(replica, as_csv)] if has_hosts else []
    cells.append([model, replica.address, replica.status, reason, *hosts])
  _print(header + ['Hosts'] * has_hosts, cells, as_csv)


def _hosts(replica: sax.Replica, as_csv: bool) -> str:
  """Returns the hosts of a group as text: "2: a, b", or "a b" in CSV."""
  if as_csv or not replica.hosts:
    return ' '.join(replica.hosts)
  return f'{len(replica.hosts)}: {", ".join(replica.hosts)}'


def _print_model(detail: sax.ModelDetail, as_csv: bool) -> None:
  cells = {
    'Model': ids.parse_model_id(detail.model_id).model,
    'Model Path': detail.model,
    'Checkpoint Path': detail.ckpt,
    '# of Replicas': str(detail.active_replicas),
    '(Selected) ReplicaAddress': random.choice(detail.addresses or ['']),
    'Methods': ', '.join(detail.method_names),
  }
  _print(list(cells), [list(cells.values())], as_csv)


def _list_model(
  context: command.Context, model_id: ids.ModelId, args: go_flags.Parsed
) -> None:
  wants_status = args['status'] and 'status' in args.given
  if not (args['details'] or args['acls'] or wants_status):
    raise errors.InvalidArgument(
      'nothing to print. Omit -details=false or -acls=false, or add -status'
    )
  detail = sax.ListDetail(str(model_id), context.admin_options())
  if args['details']:
    _print_model(detail, args['csv'])
  if args['acls']:
    _print(['Method', 'ACL'], sorted(detail.acls.items()), args['csv'])
  _print_status(context, [detail], args)


def _target(args: go_flags.Parsed) -> str:
  """Returns the target: the argument, or by default the cell in SAX_CELL."""
  if not args.rest and options_lib.default_cell():
    return options_lib.default_cell()
  command.check_count(args.rest, 1, 1)
  return args.rest[0]


def _check_act(args: go_flags.Parsed, what: str, *idle: str) -> None:
  """Raises UsageError if a flag that has no effect is given."""
  if given := args.given.intersection(idle):
    raise go_flags.UsageError(
      f'-{" and -".join(sorted(given))} have no effect on {what}. Omit them,'
      ' or name a model'
    )


@command.declare(
  'ls [-csv] [-details] [-acls] [-status] /sax[/<cell>[/<model>]]\n\tThe'
  ' default is the cell in $SAX_CELL.',
  'List cells, the models of a cell, or the details of a model.',
  (0, None),
  _CSV,
  go_flags.Flag('details', True, "Print a model's details."),
  go_flags.Flag('acls', True, "Print a model's ACLs."),
  go_flags.Flag(
    'status',
    True,
    'Print replicas that do not serve, and the reasons. If set explicitly,'
    ' print all replicas.',
  ),
)
def _ls(context: command.Context, args: go_flags.Parsed) -> None:
  target = _target(args)
  if target == '/sax':
    _check_act(args, 'all cells', 'details', 'acls', 'status')
    _list_cells(args)
    return
  parsed = ids.parse_cell_or_model_id(target)
  if isinstance(parsed, ids.CellId):
    _check_act(args, 'a cell', 'acls')
    _list_cell(context, str(parsed), args)
  else:
    _list_model(context, parsed, args)


@command.declare(
  'stats [-csv] <cell or model id, $SAX_CELL by default>',
  'Count the model servers of a cell or a model.',
  (0, None),
  _CSV,
)
def _stats(context: command.Context, args: go_flags.Parsed) -> None:
  stats = sax.Stats(_target(args), context.admin_options())
  rows = [(chip, topology, str(count)) for chip, topology, count in stats]
  _print(['Chip', 'Topology', '# of Servers'], sorted(rows), args['csv'])


@command.declare(
  'wait <model id> [<number of replicas>, 1 by default]\n\tWithout'
  ' -sax_timeout, the timeout is 30 minutes for loading replicas, else 1.',
  'Wait until replicas of a model are loaded.',
  (1, 2),
)
def _wait(context: command.Context, args: go_flags.Parsed) -> None:
  model_id, count = args.rest[0], 1
  if len(args.rest) == 2:
    count = command.parse_int(args.rest[1], 'number of replicas')
  detail = sax.ListDetail(model_id, context.admin_options())
  if note := replica_status.missing(detail):
    command.note(note)
  limit = context.timeout if context.is_given else _LOADING_SECONDS
  start = time.monotonic()
  deadline = start + limit
  noted = ''
  while True:
    left = max(0.0, deadline - time.monotonic())
    try:
      step = sax.AdminOptions(min(left, _REPORT_SECONDS))
      return sax.WaitForReady(model_id, count, step)
    except errors.DeadlineExceeded as e:
      now = _look(model_id)
      replicas = replica_status.collect([now], _LOOK_SECONDS) if now else []
      standing = '; '.join(str(replica) for _, replica in replicas)
      is_loading = any(r.status == admin_client.LOADING for _, r in replicas)
      if left <= _REPORT_SECONDS or not (is_loading or context.remaining()):
        if is_loading:
          context.timeout = limit  # The hint shows this timeout.
        text = f'{model_id} does not have {count} loaded replicas after '
        text += f'{time.monotonic() - start:.3g} s; '
        raise _not_ready(now)(text + (standing or e.message)) from e
      if is_loading and standing != noted:
        noted = standing
        command.note(f'{standing}. Waiting up to {limit:g} s (--sax_timeout)')


def _look(model_id: str) -> sax.ModelDetail | None:
  """Returns the details of a model, or None if the admin server has none."""
  try:
    return sax.ListDetail(model_id, sax.AdminOptions(_LOOK_SECONDS))
  except errors.SaxError:
    return None


def _not_ready(detail: sax.ModelDetail | None) -> type[errors.SaxError]:
  """Returns the error class to raise when the time is up.

  If the admin server knows why no server has the model, more time does not
  help. DeadlineExceeded would add a hint to allow more time.
  """
  if detail and not detail.addresses and replica_status.missing(detail):
    return errors.FailedPrecondition
  return errors.DeadlineExceeded


@command.declare(
  'watch <model id>',
  "Print the changes of a model's addresses, until it is unpublished.",
  (0, None),
)
def _watch(context: command.Context, args: go_flags.Parsed) -> None:
  if context.is_given:
    raise go_flags.UsageError(
      f'-sax_timeout={context.timeout:g}s has no effect on watch, which ends'
      ' when the model is unpublished. Omit it'
    )
  command.check_count(args.rest, 1, 1)
  for changes in sax.WatchAddresses(args.rest[0]):
    for change in changes:
      print(change, flush=True)
