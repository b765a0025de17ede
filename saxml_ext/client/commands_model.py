"""saxutil commands that make a model server write files."""

from saxml_ext.client import blocking
from saxml_ext.client import command
from saxml_ext.client import data_client
from saxml_ext.client import go_flags
from saxml_ext.client import modelet
from saxml_ext.client import options as options_lib
from saxml_ext.common import errors
from saxml_ext.common import ids
from saxml_ext.protobuf import modelet_pb2

_SEED_MODES = {
    'fixed': modelet_pb2.ExportRequest.FIXED,
    'stateful': modelet_pb2.ExportRequest.STATEFUL,
    'stateless': modelet_pb2.ExportRequest.STATELESS,
}


def _open(model_id: str) -> modelet.Modelet:
  client = data_client.DataClient(
      str(ids.parse_model_id(model_id)),
      options_lib.Options(),
      blocking.transport,
  )
  return modelet.Modelet(client)


def _save(context: command.Context, args: go_flags.Parsed) -> None:
  command.check_count(args.rest, 2, 2)
  model_id, path = args.rest
  blocking.run(_open(model_id).save(path, context.remaining()))


def _export(context: command.Context, args: go_flags.Parsed) -> None:
  del context  # An export takes as long as it takes.
  command.check_count(args.rest, 3, 3)
  model_id, methods, path = args.rest
  method_names = methods.split(',')
  signatures = args['signatures'].split(',') if args['signatures'] else []
  mode = args['rng_seed_mode'].lower()
  if mode not in _SEED_MODES:
    raise errors.InvalidArgument(
        f'-rng_seed_mode={mode} is none of {", ".join(_SEED_MODES)}'
    )
  if signatures and len(signatures) != len(method_names):
    raise errors.InvalidArgument(
        f'there are {len(signatures)} signatures for {len(method_names)} '
        'methods: give as many, or none'
    )
  blocking.run(
      _open(model_id).export(
          path,
          method_names,
          signatures,
          _SEED_MODES[mode],
          args['enable_gpu_multi_device_execution'],
          None,
      )
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
