"""saxutil commands that change what is published."""

from saxml_ext.client import admin_client
from saxml_ext.client import blocking
from saxml_ext.client import command
from saxml_ext.client import go_flags
from saxml_ext.client import sax
from saxml_ext.common import errors
from saxml_ext.common import ids


def _publish(context: command.Context, args: go_flags.Parsed) -> None:
  command.check_count(args.rest, 4, None)
  model_id, model_path, checkpoint_path, replicas, *items = args.rest
  count = command.parse_int(replicas, 'number of replicas')
  overrides = {}
  for item in items:
    key, equals, value = item.partition('=')
    if not equals:
      raise go_flags.UsageError(
          f'override "{item}" has no "=": write key=value, for example '
          'BATCH_SIZE=4'
      )
    overrides[key] = value
  sax.Publish(
      model_id,
      model_path,
      checkpoint_path,
      count,
      overrides,
      context.admin_options(),
  )


def _unpublish(context: command.Context, args: go_flags.Parsed) -> None:
  command.check_count(args.rest, 1, 1)
  sax.Unpublish(args.rest[0], context.admin_options())


def _update(context: command.Context, args: go_flags.Parsed) -> None:
  command.check_count(args.rest, 1, 1)
  model_id = ids.parse_model_id(args.rest[0])
  if args['replicas'] < 0:
    raise errors.InvalidArgument(
        f'number of replicas {args["replicas"]} must be non-negative: give '
        '-replicas=<n>'
    )
  admin = admin_client.get(model_id.cell)
  model = blocking.run(admin.list_one(str(model_id), context.remaining())).model
  model.requested_num_replicas = args['replicas']
  blocking.run(admin.update(model, context.remaining()))


def _update_checkpoint(context: command.Context, args: go_flags.Parsed) -> None:
  command.check_count(args.rest, 2, 2)
  model_id = ids.parse_model_id(args.rest[0])
  admin = admin_client.get(model_id.cell)
  model = blocking.run(admin.list_one(str(model_id), context.remaining())).model
  model.checkpoint_path = args.rest[1]
  blocking.run(admin.update(model, context.remaining()))


COMMANDS = (
    command.Command(
        'publish',
        'Publish a model.',
        'publish <model id> <model path> <checkpoint> <number of replicas> '
        '[<key>=<value> ...]\n'
        '\tOverrides are attributes of the serving params, values in JSON: '
        'BATCH_SIZE=4 NAME=\'"x"\'.',
        _publish,
    ),
    command.Command(
        'unpublish',
        'Unpublish a model.',
        'unpublish <model id>',
        _unpublish,
    ),
    command.Command(
        'update',
        "Change a model's number of replicas.",
        'update -replicas=<n> <model id>',
        _update,
        (go_flags.Flag('replicas', -1, 'Number of replicas.'),),
    ),
    command.Command(
        'update_checkpoint',
        "Change a model's checkpoint.",
        'update_checkpoint <model id> <checkpoint>',
        _update_checkpoint,
    ),
)
