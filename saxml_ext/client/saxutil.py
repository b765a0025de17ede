"""The command line of a Sax cell.

    saxutil --sax_root=/tmp/sax ls /sax/test
    saxutil publish /sax/test/m <model path> <checkpoint> 1 BATCH_SIZE=4
    saxutil lm.generate -extra=temperature:0.2 /sax/test/m 'Hello'

The environment variable SAX_ROOT replaces --sax_root. SAX_CELL names the cell
of models that are given by a short name.

Exit codes: 0 for success, 1 for a failure, 2 for a wrong command line.
"""

from collections.abc import Sequence
import dataclasses
import logging
import sys

# This import must come before any module that imports gRPC.
from saxml_ext.common import grpc_log  # noqa: F401 Registers or sets up.

# isort: split

import grpc

from saxml_ext.client import sax
from saxml_ext.client.cli import command
from saxml_ext.client.cli import go_flags
from saxml_ext.common import errors
from saxml_ext.common import ids
from saxml_ext.common.security import tls
from saxml_ext.common.telemetry import log_format
from saxml_ext.common.telemetry import tracing

_OK, _FAILURE, _USAGE, _INTERRUPTED = 0, 1, 2, 130

_LOGS = 'Ignored. Logs always go to stderr.'
_TLS = {
  'ca_file': "The servers' CA",
  'cert_file': "The client's certificate",
  'key_file': "The client's key",
  'server_name': "The servers' name",
}
# The flags that precede a command.
FLAGS = (
  go_flags.Flag('sax_root', '', 'The root of all cells. Default: $SAX_ROOT.'),
  go_flags.Flag('sax_timeout', 60.0, 'Timeout of a command, "90s" or "5m".'),
  *(
    go_flags.Flag(f'tls_{n}', '', f'{what}. Default: $SAX_TLS_{n.upper()}.')
    for n, what in _TLS.items()
  ),
  go_flags.Flag('logtostderr', False, _LOGS),
  go_flags.Flag('alsologtostderr', False, _LOGS),
  go_flags.Flag('v', 0, 'The verbosity of logs.'),
  go_flags.Flag('log_format', 'text', 'The format of log lines: text or json.'),
  go_flags.Flag('version', False, 'Print the version and the commit.'),
)

# Maps the commands about commands to their descriptions.
ABOUT = {
  'commands': 'List the names of all commands.',
  'completion': 'Print a script that completes command lines in a shell.',
  'flags': 'Describe the flags before a command.',
  'help': 'Describe a command.',
}


def _flags_text(flags: Sequence[go_flags.Flag]) -> str:
  lines = []
  for flag in flags:
    default = (
      f'{flag.default:g}s'
      if isinstance(flag.default, float)
      else str(flag.default).lower()
    )
    lines.append(f'  -{flag.name} (default "{default}")\n    \t{flag.help}\n')
  return ''.join(lines)


def _usage() -> str:
  lines = [
    'Usage: saxutil <flags> <subcommand> <subcommand args>\n\nSubcommands:\n'
  ]
  synopses = {item.name: item.synopsis for item in command.commands()}
  for name, synopsis in sorted((synopses | ABOUT).items()):
    lines.append(f'\t{name:<15}  {synopsis}\n')
  lines.append('\nUse "saxutil flags" for a list of top-level flags\n')
  return ''.join(lines)


def _help_text(item: command.Command | None) -> str:
  """Returns the help text of a command, or of saxutil as a whole."""
  if item is None:
    return _usage()
  usage, *notes = item.usage.splitlines()
  lines = [usage, '\t' + item.synopsis, *notes]
  return '\n'.join(lines) + f'\n{_flags_text(item.flags)}'


def _explain(name: str, args: Sequence[str]) -> int:
  """Runs one of the commands about commands."""
  if name == 'commands':
    print('\n'.join(sorted([*command.names(), *ABOUT])))
  elif name == 'flags':
    print(_flags_text(FLAGS), end='')
  elif name == 'completion':
    _complete(args)
  elif not args:
    print(_usage(), end='')
  elif item := command.get(args[0]):
    print(_help_text(item), end='')
  else:
    raise _unknown(args[0])
  return _OK


def _complete(args: Sequence[str]) -> None:
  # Most commands do not need this module, so they start faster without it.
  from saxml_ext.client.cli import shell_completion

  if len(args) != 1 or args[0] not in shell_completion.SHELLS:
    shells = ', '.join(shell_completion.SHELLS)
    raise go_flags.UsageError(
      f'completion takes one argument, one of {shells}. Example: source'
      ' <(saxutil completion bash)'
    )
  print(
    shell_completion.script(args[0], command.commands(), ABOUT, FLAGS), end=''
  )


def _unknown(name: str) -> go_flags.UsageError:
  """Returns the error for an unknown command name."""
  if not name:
    return go_flags.UsageError('a command is missing')
  near = ids.near_misses(name, [*command.names(), *ABOUT])
  hint = f'. Did you mean {" or ".join(near)}?' if near else ''
  return go_flags.UsageError(f'unknown command "{name}"{hint}')


def _misuse(error: go_flags.UsageError, item: command.Command | None) -> int:
  print(f'Error: {error}', file=sys.stderr)
  print(_help_text(item), file=sys.stderr, end='')
  return _USAGE


def _fail(error: sax.SaxError, hint: str) -> int:
  if not isinstance(error, command.Printed):
    print(f'Error: {error.message}', file=sys.stderr)
  if hint:
    print(f'Hint: {hint}', file=sys.stderr)
  return _FAILURE


def _hint(
  error: errors.SaxError, name: str, args: Sequence[str], timeout: float
) -> str:
  """Returns a sentence with a remedy for an error, or "" if there is none.

  Args:
    error: The error of the command.
    name: The name of the command.
    args: The arguments of the command, without flags.
    timeout: The timeout of the command, in seconds.
  """
  target = args[0] if args else ''
  if error.code is grpc.StatusCode.DEADLINE_EXCEEDED:
    return (
      f'the timeout of the command was {timeout:g} s. Set a longer one before'
      f' its name: saxutil --sax_timeout=10m {name} ...'
    )
  if error.code is grpc.StatusCode.PERMISSION_DENIED and target:
    guarded = _cell_of_model(target) if name == 'publish' else target
    return f'`saxutil getacl {guarded}` prints the ACL that must admit you'
  if error.code is grpc.StatusCode.UNIMPLEMENTED and name == 'setacl':
    return (
      'the cell has no access lists. Write acls.json beside its config.proto,'
      ' see docs/security.md'
    )
  if error.code is grpc.StatusCode.ALREADY_EXISTS and name == 'publish':
    return (
      f'`saxutil update_checkpoint {target} <checkpoint>` changes a published'
      f' model. `saxutil unpublish {target}` removes it'
    )
  if error.code is grpc.StatusCode.NOT_FOUND and (
    cell := _cell_of_model(target)
  ):
    return f'`saxutil ls {cell}` lists the published models'
  return ''


def _cell_of_model(target: str) -> str:
  try:
    return ids.parse_model_id(target).cell
  except errors.InvalidArgument:
    return ''


def _run(
  item: command.Command, given: go_flags.Parsed, context: command.Context
) -> int:
  try:
    item.run(context, given)
  except sax.SaxError as e:
    return _fail(e, _hint(e, item.name, given.rest, context.timeout))
  except OSError as e:
    # The most likely cause is a file below the root of all cells.
    print(f'Error: {e}', file=sys.stderr)
    return _FAILURE
  except KeyboardInterrupt:
    return _INTERRUPTED
  return _OK


def _set_tls(parsed: go_flags.Parsed) -> None:
  """Applies the TLS flags; raises SaxError if only some of them are set."""
  default = tls.from_environment()
  given = {n: v for n in _TLS if (v := parsed[f'tls_{n}'])}
  tls.configure(dataclasses.replace(default, **given) if given else None)
  tls.current()


def _set_up_telemetry(verbosity: int, form: str) -> None:
  """Sets up logs and traces by the flags and OpenTelemetry's variables."""
  if form not in (log_format.TEXT, log_format.JSON):
    raise errors.InvalidArgument(
      f'--log_format is "{form}". Set {log_format.TEXT} or {log_format.JSON}'
    )
  handler = logging.StreamHandler()
  if form == log_format.JSON:
    handler.setFormatter(log_format.JsonFormatter())
  level = logging.DEBUG if verbosity > 0 else logging.WARNING
  if verbosity > 0 or form == log_format.JSON:
    logging.basicConfig(level=level, handlers=[handler])
  tracing.configure('saxutil')


def run(args: Sequence[str]) -> int:
  """Runs a command line (without the program name); returns the exit code."""
  try:
    parsed = go_flags.parse(FLAGS, args)
  except go_flags.HelpWanted:
    print(_usage() + '\nFlags:\n' + _flags_text(FLAGS), end='')
    return _OK
  except go_flags.UsageError as e:
    return _misuse(e, None)
  if parsed['version']:
    from saxml_ext.common import program  # Most commands do not need it.

    print(program.version_text())
    return _OK
  try:
    _set_up_telemetry(parsed['v'], parsed['log_format'])
    if parsed['sax_root']:
      sax.SetRoot(parsed['sax_root'])
    _set_tls(parsed)
  except sax.SaxError as e:
    return _fail(e, '')
  name, *rest = parsed.rest or ['']
  item = command.get(name)
  try:
    if name in ABOUT:
      return _explain(name, rest)
    if item is None:
      raise _unknown(name)
    given = command.complete(go_flags.parse(item.flags, rest))
    command.check_count(given.rest, *item.count)
    context = command.Context(
      parsed['sax_timeout'], 'sax_timeout' in parsed.given
    )
    return _run(item, given, context)
  except go_flags.HelpWanted:
    print(_help_text(item), end='')
  except go_flags.UsageError as e:
    return _misuse(e, item)
  return _OK


if __name__ == '__main__':
  sys.exit(run(sys.argv[1:]))
