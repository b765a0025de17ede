"""Prints the official description of a system, and lists missing values.

system [--preset=NAME] [--system_description=FILE] [--submitter=...] [--out=...]
system presets
system keys
system cuda
"""

from collections.abc import Sequence
import dataclasses
import json
import sys
from typing import Any

from absl import app
from absl import flags

from harness import dashes
from harness import errors
from harness.description import cuda
from harness.description import description
from saxml_ext.common import files
from saxml_ext.common import flag_rules
from saxml_ext.common import user_path

_PRESET = flags.DEFINE_string(
  'preset',
  description.THIS_MACHINE,
  'The known system to describe; `presets` lists them.',
)
_FILE = flags.DEFINE_string(
  'system_description',
  None,
  'A YAML or JSON file with values that cannot be detected, by key; `keys`'
  ' lists the keys.',
)
_OUT = flags.DEFINE_string(
  'out',
  None,
  'The output file, such as systems/<name>.json of a submission. Default, and'
  ' with "json": standard output.',
)
_BY_FLAG = {
  'submitter': flags.DEFINE_string(
    'submitter', None, 'The name of the submitter.'
  ),
  'division': flags.DEFINE_enum(
    'division', None, description.DIVISIONS, 'The division of the submission.'
  ),
  'status': flags.DEFINE_enum(
    'status', None, description.STATUSES, 'The availability of the system.'
  ),
  'system_name': flags.DEFINE_string(
    'system_name', None, 'The name of the system.'
  ),
  'system_type': flags.DEFINE_enum(
    'system_type',
    None,
    description.SYSTEM_TYPES,
    'The category of the submission.',
  ),
  'hw_notes': flags.DEFINE_string('hw_notes', None, 'Notes on the hardware.'),
  'sw_notes': flags.DEFINE_string('sw_notes', None, 'Notes on the software.'),
}
_SET = flags.DEFINE_multi_string(
  'set',
  [],
  'KEY=VALUE for any other key, such as cooling=air. May be repeated.',
)
flag_rules.act_only(
  'without a word',
  lambda: not flag_rules.command(),
  f'preset system_description set {" ".join(_BY_FLAG)}',
)
flag_rules.act_only(
  'without a word, or with cuda',
  lambda: flag_rules.command() in ('', 'cuda'),
  'out',
)
_USAGE = 'use no word, `presets`, `keys` or `cuda`'


def main(argv: Sequence[str]) -> None:
  command = argv[1] if len(argv) > 1 else ''
  if len(argv) > 2 or command not in _COMMANDS:
    raise app.UsageError(f'{" ".join(argv[1:])}: {_USAGE}')
  with dashes.exit_on('system', (errors.HarnessError, OSError, ValueError)):
    _COMMANDS[command]()


def _describe() -> None:
  values = description.describe(_PRESET.value, _overrides())
  _put(values)
  missing = description.missing(values)
  if missing:
    print('system: a submission also needs these keys:', file=sys.stderr)
    for name in missing:
      print(f'  {name}: {description.ALL[name].meaning}', file=sys.stderr)
    print(
      'Pass them in a file (--system_description) or one by one'
      ' (--set=KEY=VALUE).',
      file=sys.stderr,
    )


def _overrides() -> dict[str, Any]:
  """Returns the user's values. Flags take precedence over the file.

  Raises:
    OSError, ValueError: The file or a flag is invalid.
  """
  path = user_path.resolve(_FILE.value)
  values = description.read_file(path) if path else {}
  for word in _SET.value:
    key, equals, value = word.partition('=')
    if not equals:
      raise ValueError(
        f'--set={word} must have the form KEY=VALUE, such as cooling=air'
      )
    values[key] = value
  given = {name: flag.value for name, flag in _BY_FLAG.items()}
  return values | {k: v for k, v in given.items() if v is not None}


def _presets() -> None:
  for name in description.preset_names():
    preset = description.read_preset(name)
    source = f'\n{"":<14}{preset.source}' if preset.source else ''
    print(f'{name:<14}{preset.about}{source}')


def _keys() -> None:
  for name, field in description.ALL.items():
    state = 'not empty' if field.filled else 'may be empty'
    if name in description.POWER:
      state = 'only with power measurements'
    elif name in description.NETWORK:
      state = 'only if LoadGen runs on another host'
    choices = f' [{", ".join(field.choices)}]' if field.choices else ''
    print(f'{name} ({state}): {field.meaning}{choices}')


def _cuda() -> None:
  detected = cuda.detect()
  _put(dataclasses.asdict(detected))
  if detected.driver is None:
    print(
      "system: NVIDIA's driver is not installed on this machine",
      file=sys.stderr,
    )


_COMMANDS = {'': _describe, 'presets': _presets, 'keys': _keys, 'cuda': _cuda}


def _put(record: dict[str, Any]) -> None:
  """Prints the record, or writes it to a file atomically."""
  text = json.dumps(record, indent=2) + '\n'
  if _OUT.value in (None, 'json'):
    sys.stdout.write(text)
    return
  path = user_path.resolve(_OUT.value)
  with files.replacing(path) as file:
    file.write(text)
  print(f'wrote {path}')


if __name__ == '__main__':
  dashes.run(main)
