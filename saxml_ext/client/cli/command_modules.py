"""Which module has which command of saxutil.

Importing all of them takes longer than most commands run, so a module is
imported when one of its commands is asked for.
"""

import importlib

from saxml_ext.client.cli import command

_COMMANDS = {
  'acl': ('getacl', 'setacl'),
  'cells': ('create', 'delete'),
  'export_commands': ('export', 'save'),
  'language': ('lm.embed', 'lm.generate', 'lm.gradient', 'lm.score'),
  'listing': ('ls', 'stats', 'wait', 'watch'),
  'media': (
    'am.recognize',
    'vm.classify',
    'vm.detect',
    'vm.embed',
    'vm.generate',
  ),
  'publishing': ('publish', 'unpublish', 'update', 'update_checkpoint'),
}
_MODULES = {
  name: module for module, names in _COMMANDS.items() for name in names
}


def names() -> list[str]:
  """The names of all commands, sorted."""
  return sorted(_MODULES)


def commands() -> list[command.Command]:
  """All commands, sorted by name."""
  return [_load(name) for name in names()]


def get(name: str) -> command.Command | None:
  """The command of that name; None if there is none."""
  return _load(name) if name in _MODULES else None


def _load(name: str) -> command.Command:
  module = importlib.import_module(f'saxml_ext.client.cli.{_MODULES[name]}')
  [found] = [item for item in module.COMMANDS if item.name == name]
  return found
