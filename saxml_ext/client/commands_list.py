"""saxutil commands that look: ls, stats, wait, watch."""

from collections.abc import Sequence
import random

from saxml_ext.client import address_watcher
from saxml_ext.client import admin_client
from saxml_ext.client import blocking
from saxml_ext.client import command
from saxml_ext.client import go_flags
from saxml_ext.client import replica_status
from saxml_ext.client import sax
from saxml_ext.client import text_table
from saxml_ext.common import cell as cell_files
from saxml_ext.common import errors
from saxml_ext.common import ids
from saxml_ext.protobuf import admin_pb2


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
  published = blocking.run(admin_client.get(cell).list_all(context.remaining()))
  published.sort(key=lambda item: item.model.model_id)
  models = [item.model for item in published]
  header = ['#', 'Model ID']
  rows = [
      [str(i), model.model_id.removeprefix(cell + '/')]
      for i, model in enumerate(models)
  ]
  if args['details'] and 'details' in args.given:
    header.append('Methods')
    for row, model in zip(rows, models):
      row.append(', '.join(model.method_names))
  _print(header, rows, args['csv'])
  _print_status(context, published, args)


def _print_status(
    context: command.Context,
    published: Sequence[admin_pb2.PublishedModel],
    args: go_flags.Parsed,
) -> None:
  """Tells which replicas do not serve, and why; all of them with -status.

  Programs that read the other tables do not expect this one, so it comes last
  and not uncalled for in CSV.
  """
  is_asked_for = 'status' in args.given
  if not args['status'] or (args['csv'] and not is_asked_for):
    return
  rows = []
  for model_id, replica in replica_status.of(published, context.remaining()):
    status = replica_status.name(replica)
    if is_asked_for or status != 'LOADED':
      # Commas would end a value, and lines a row, of CSV.
      reason = ' '.join(replica.reason.split())
      rows.append(
          [
              ids.parse_model_id(model_id).model,
              replica.address,
              status,
              reason.replace(',', ';') if args['csv'] else reason,
          ]
      )
  if rows or is_asked_for:
    _print(['Model', 'Replica', 'Status', 'Reason'], rows, args['csv'])


def _print_model(published: admin_pb2.PublishedModel, as_csv: bool) -> None:
  model, addresses = published.model, published.modelet_addresses
  header = [
      'Model',
      'Model Path',
      'Checkpoint Path',
      '# of Replicas',
      '(Selected) ReplicaAddress',
      'Methods',
  ]
  row = [
      ids.parse_model_id(model.model_id).model,
      model.model_path,
      model.checkpoint_path,
      str(len(addresses)),
      random.choice(addresses) if addresses else '',
      ', '.join(model.method_names),
  ]
  _print(header, [row], as_csv)


def _list_model(
    context: command.Context, model_id: ids.ModelId, args: go_flags.Parsed
) -> None:
  if not any(args[name] for name in ('details', 'acls', 'status')):
    raise errors.InvalidArgument(
        'nothing to print: leave -details, -acls or -status as it is'
    )
  admin = admin_client.get(model_id.cell)
  published = blocking.run(admin.list_one(str(model_id), context.remaining()))
  if args['details']:
    _print_model(published, args['csv'])
  if args['acls']:
    rows = sorted(published.model.acls.items.items())
    _print(['Method', 'ACL'], rows, args['csv'])
  _print_status(context, [published], args)


def _ls(context: command.Context, args: go_flags.Parsed) -> None:
  command.check_count(args.rest, 1, 1)
  if args.rest[0] == '/sax':
    _list_cells(args)
    return
  parsed = ids.parse_cell_or_model_id(args.rest[0])
  if isinstance(parsed, ids.CellId):
    _list_cell(context, str(parsed), args)
  else:
    _list_model(context, parsed, args)


def _stats(context: command.Context, args: go_flags.Parsed) -> None:
  command.check_count(args.rest, 1, 1)
  rows = [
      (chip, topology, str(count))
      for chip, topology, count in sax.Stats(
          args.rest[0], context.admin_options()
      )
  ]
  _print(['Chip', 'Topology', '# of Servers'], sorted(rows), args['csv'])


def _wait(context: command.Context, args: go_flags.Parsed) -> None:
  command.check_count(args.rest, 1, 2)
  count = 1
  if len(args.rest) == 2:
    count = command.parse_int(args.rest[1], 'number of replicas')
  sax.WaitForReady(args.rest[0], count, context.admin_options())


def _watch(context: command.Context, args: go_flags.Parsed) -> None:
  del context  # It lasts until the model is unpublished.
  command.check_count(args.rest, 1, 1)
  model_id = ids.parse_model_id(args.rest[0])
  admin = admin_client.get(model_id.cell)
  known = address_watcher.AddressSet()
  while True:
    response = blocking.run(
        admin.watch_loc(str(model_id), known.admin_server_id, known.seqno, None)
    )
    for change in known.apply(response):
      print(change, flush=True)


_CSV = go_flags.Flag('csv', False, 'Print comma-separated values.')

COMMANDS = (
    command.Command(
        'ls',
        'List cells, the models of a cell, or what is known of a model.',
        'ls [-csv] [-details] [-acls] [-status] /sax[/<cell>[/<model>]]',
        _ls,
        (
            _CSV,
            go_flags.Flag('details', True, "Print a model's details."),
            go_flags.Flag('acls', True, "Print a model's ACLs."),
            go_flags.Flag(
                'status',
                True,
                'Print which replicas do not serve, and why; all replicas if '
                'given.',
            ),
        ),
    ),
    command.Command(
        'stats',
        'Count the model servers of a cell or a model.',
        'stats [-csv] <cell or model id>',
        _stats,
        (_CSV,),
    ),
    command.Command(
        'wait',
        'Wait until replicas of a model are loaded.',
        'wait <model id> [<number of replicas>, 1 by default]',
        _wait,
    ),
    command.Command(
        'watch',
        "Print the changes of a model's addresses, until it is unpublished.",
        'watch <model id>',
        _watch,
    ),
)
