"""saxutil commands that make a model server write files."""

from saxml_ext.client import sax
from saxml_ext.client.cli import command
from saxml_ext.client.cli import go_flags


def _save(context: command.Context, args: go_flags.Parsed) -> None:
  command.check_count(args.rest, 2, 2)
  model_id, path = args.rest
  sax.Model(model_id).Modelet().Save(path, context.model_options())


def _export(context: command.Context, args: go_flags.Parsed) -> None:
  command.check_count(args.rest, 3, 3)
  model_id, methods, path = args.rest
  method_names = methods.split(',')
  signatures = args['signatures'].split(',') if args['signatures'] else []
  sax.Model(model_id).Modelet().Export(
    path,
    method_names,
    signatures,
    args['rng_seed_mode'].lower(),
    args['enable_gpu_multi_device_execution'],
    # An export takes as long as it takes, unless a time is given.
    context.model_options() if context.is_given else None,
  )


COMMANDS = (
  command.Command(
    'export',
    'Export a model to a TF SavedModel.',
    'export [flags] <model id> <method>[,<method> ...] <path>',
    _export,
    (
      go_flags.Flag(
        'rng_seed_mode', 'stateful', 'stateful, stateless or fixed.'
      ),
      go_flags.Flag(
        'signatures',
        '',
        'Names of the methods there, with commas between.',
      ),
      go_flags.Flag(
        'enable_gpu_multi_device_execution',
        True,
        'Whether the result can run on several GPUs.',
      ),
    ),
  ),
  command.Command(
    'save',
    'Save a model checkpoint.',
    'save <model id> <path>',
    _save,
  ),
)
