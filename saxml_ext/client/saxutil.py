"""Command line of a Sax cell.

    saxutil --sax_root=/tmp/sax ls /sax/test
    saxutil publish /sax/test/m <model path> <checkpoint> 1 BATCH_SIZE=4
    saxutil lm.generate -extra=temperature:0.2 /sax/test/m 'Hello'

Exit codes: 0, 1 for a failure, 2 for a wrong command line.
"""

from collections.abc import Sequence
import os
import sys

# Before any module that imports gRPC.
from saxml_ext.common import grpc_log  # pylint: disable=unused-import

from absl import app
from absl import flags as absl_flags
from absl import logging

from saxml_ext.client import admin_client
from saxml_ext.client import command
from saxml_ext.client import commands_acl
from saxml_ext.client import commands_cell
from saxml_ext.client import commands_list
from saxml_ext.client import commands_lm
from saxml_ext.client import commands_media
from saxml_ext.client import commands_model
from saxml_ext.client import commands_publish
from saxml_ext.client import go_flags
from saxml_ext.common import errors

_OK, _FAILURE, _USAGE, _INTERRUPTED = 0, 1, 2, 130

_COMMANDS = {
    item.name: item
    for module in (
        commands_acl,
        commands_cell,
        commands_list,
        commands_lm,
        commands_media,
        commands_model,
        commands_publish,
    )
    for item in module.COMMANDS
}

_LOGS = 'For old scripts: logs go to stderr, here always.'
_FLAGS = (
    go_flags.Flag('sax_root', '', 'Root of all cells; else $SAX_ROOT.'),
    go_flags.Flag('sax_timeout', 60.0, 'Deadline of a command, "90s", "5m".'),
    go_flags.Flag('logtostderr', False, _LOGS),
    go_flags.Flag('alsologtostderr', False, _LOGS),
    go_flags.Flag('v', 0, 'Log more.'),
)

_HINT = """Hint:
* No answer in time: allow more than the default of 60s (saxutil
  --sax_timeout=600s ...).
* Not a directory, or no such file: check --sax_root or SAX_ROOT (now "{root}"),
  and that the cell's admin server was started.
* Permission denied: see with `saxutil getacl` whom to ask.
"""


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
  synopses = {name: item.synopsis for name, item in _COMMANDS.items()}
  synopses['commands'] = 'List the names of all commands.'
  synopses['flags'] = 'Describe the flags before a command.'
  synopses['help'] = 'Describe a command.'
  for name, synopsis in sorted(synopses.items()):
    lines.append(f'\t{name:<15}  {synopsis}\n')
  lines.append('\nUse "saxutil flags" for a list of top-level flags\n')
  return ''.join(lines)


def _help_text(item: command.Command) -> str:
  usage, *notes = item.usage.splitlines()
  lines = [usage, '\t' + item.synopsis, *notes]
  return '\n'.join(lines) + f'\n{_flags_text(item.flags)}'


def _explain(name: str, args: Sequence[str]) -> int:
  """The commands about commands."""
  if name == 'commands':
    print('\n'.join(sorted([*_COMMANDS, 'commands', 'flags', 'help'])))
  elif name == 'flags':
    print(_flags_text(_FLAGS), end='')
  elif not args:
    print(_usage(), end='')
  elif args[0] in _COMMANDS:
    print(_help_text(_COMMANDS[args[0]]), end='')
  else:
    raise go_flags.UsageError(f'there is no command "{args[0]}"')
  return _OK


def _fail(item: command.Command, error: errors.SaxError) -> int:
  root = os.environ.get('SAX_ROOT', '')
  try:
    root = admin_client.root()
  except errors.FailedPrecondition:
    pass  # The hint shows that it is empty.
  logging.error('%s failed: %s: %s', item.name, error.code.name, error.message)
  print(f'Error: {error.message}\n{_HINT.format(root=root)}', file=sys.stderr)
  return _FAILURE


def run(args: Sequence[str]) -> int:
  """Runs a command line without the program's name; returns the exit code."""
  try:
    parsed = go_flags.parse(_FLAGS, args)
  except go_flags.HelpWanted:
    print(_usage(), end='')
    return _OK
  except go_flags.UsageError as e:
    logging.error('%s', e)
    print(_usage(), file=sys.stderr, end='')
    return _USAGE
  if parsed['v'] > 0:
    logging.set_verbosity(logging.DEBUG)
  if parsed['sax_root']:
    admin_client.set_root(parsed['sax_root'])
  name, *rest = parsed.rest or ['']
  item = _COMMANDS.get(name)
  try:
    if item is None and name in ('commands', 'flags', 'help'):
      return _explain(name, rest)
    if item is None:
      raise go_flags.UsageError(
          f'there is no command "{name}"' if name else 'a command is missing'
      )
    item.run(
        command.Context(parsed['sax_timeout']),
        go_flags.parse(item.flags, rest),
    )
  except go_flags.HelpWanted:
    print(_help_text(item), end='')
  except go_flags.UsageError as e:
    logging.error('%s', e)
    text = _help_text(item) if item else _usage()
    print(text, file=sys.stderr, end='')
    return _USAGE
  except errors.SaxError as e:
    return _fail(item, e)
  except KeyboardInterrupt:
    return _INTERRUPTED
  return _OK


def _parse_no_flags(argv: Sequence[str]) -> Sequence[str]:
  # The flags of this program are not absl's; those keep their defaults.
  absl_flags.FLAGS(argv[:1])
  return argv


if __name__ == '__main__':
  app.run(lambda argv: run(argv[1:]), flags_parser=_parse_no_flags)
