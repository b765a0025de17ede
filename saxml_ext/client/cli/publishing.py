"""Implements the saxutil commands that publish, update and export models."""

from saxml_ext.client import sax
from saxml_ext.client.cli import command
from saxml_ext.client.cli import go_flags
from saxml_ext.client.cli import replica_status
from saxml_ext.common import errors
from saxml_ext.common import ids
from saxml_ext.params import all_params  # noqa: F401 Registers them.
from saxml_ext.params import overrides as overrides_lib

# The timeout, in seconds, for asking the admin server about a new model.
_NOTE_PATIENCE = 5.0


@command.declare(
  'publish <model id> <model path> <checkpoint> <number of replicas>'
  ' [<key>=<value> ...]\n\tOverrides set attributes of the serving params.'
  ' Values are JSON or plain text: BATCH_SIZE=4 QUANTIZATION=int8.',
  'Publish a model.',
  (4, None),
)
def _publish(context: command.Context, args: go_flags.Parsed) -> None:
  model_id, model_path, checkpoint_path, replicas, *items = args.rest
  ids.parse_model_id(model_id)
  count = command.parse_int(replicas, 'number of replicas')
  overrides = {}
  for item in items:
    key, equals, value = item.partition('=')
    if not equals:
      raise go_flags.UsageError(
        f'override "{item}" has no "=". Write key=value, for example'
        ' BATCH_SIZE=4'
      )
    overrides[key] = value
  overrides_lib.check(model_path, overrides)
  sax.Publish(
    model_id,
    model_path,
    checkpoint_path,
    count,
    overrides,
    context.admin_options(),
  )
  for text in overrides_lib.find_mistakes(model_path, overrides):
    command.note(text, 'Warning')
  _note_missing_servers(model_id, min(context.remaining(), _NOTE_PATIENCE))


def _note_missing_servers(model_id: str, timeout: float) -> None:
  """Prints why the new model has no server, if the reason is known."""
  try:
    detail = sax.ListDetail(model_id, sax.AdminOptions(timeout=timeout))
  except errors.SaxError:
    return  # The model is published, and the note is optional.
  note = replica_status.missing(detail)
  if note:
    command.note(note)
  path = detail.model
  if not detail.addresses and path not in note:  # No server knows the path.
    if slip := overrides_lib.find_path_mistake(path):
      command.note(slip, 'Warning')


@command.declare('unpublish <model id>', 'Unpublish a model.', (1, 1))
def _unpublish(context: command.Context, args: go_flags.Parsed) -> None:
  sax.Unpublish(args.rest[0], context.admin_options())


@command.declare(
  'update -replicas=<n> <model id>',
  "Change a model's number of replicas.",
  (1, 1),
  go_flags.Flag('replicas', -1, 'Number of replicas.'),
)
def _update(context: command.Context, args: go_flags.Parsed) -> None:
  if args['replicas'] < 0:
    raise errors.InvalidArgument(
      f'number of replicas {args["replicas"]} must be non-negative. Set'
      ' -replicas=<n>'
    )
  sax.UpdateReplicas(args.rest[0], args['replicas'], context.admin_options())


@command.declare(
  'update_checkpoint <model id> <checkpoint>',
  "Change a model's checkpoint.",
  (2, 2),
)
def _update_checkpoint(context: command.Context, args: go_flags.Parsed) -> None:
  model_id, checkpoint_path = args.rest
  sax.UpdateCheckpoint(model_id, checkpoint_path, context.admin_options())


@command.declare('save <model id> <path>', 'Save a model checkpoint.', (2, 2))
def _save(context: command.Context, args: go_flags.Parsed) -> None:
  model_id, path = args.rest
  sax.Model(model_id).Modelet().Save(path, context.model_options())


@command.declare(
  'export [flags] <model id> <method>[,<method> ...] <path>',
  'Export a model to a TF SavedModel.',
  (3, 3),
  go_flags.Flag('rng_seed_mode', 'stateful', 'stateful, stateless or fixed.'),
  go_flags.Flag(
    'signatures', '', 'The names of the signatures, separated by commas.'
  ),
  go_flags.Flag(
    'enable_gpu_multi_device_execution', True, 'Export for several GPUs.'
  ),
)
def _export(context: command.Context, args: go_flags.Parsed) -> None:
  model_id, methods, path = args.rest
  method_names = methods.split(',')
  signatures = args['signatures'].split(',') if args['signatures'] else []
  sax.Model(model_id).Modelet().Export(
    path,
    method_names,
    signatures,
    args['rng_seed_mode'].lower(),
    args['enable_gpu_multi_device_execution'],
    # An export has no time limit unless the user sets one.
    context.model_options() if context.is_given else None,
  )
