"""Runs a program: parses flags, prints help and rejects invalid arguments.

A program calls `program.run(main)` instead of absl's `app.run(main)`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
import os
import pathlib
import sys
import textwrap
import types
from typing import Any

from absl import app
from absl import flags

from saxml_ext.common import flag_rules

# deploy/version.bzl has the same version, for the wheel and the images.
VERSION = '1.1.0'

# Images name the commit of their sources here.
COMMIT_VARIABLE = 'GPTJ_SAX_COMMIT'

# These packages define this repository's own flags.
_OWN = (
  *('benchmarks', 'bundled', 'converters', 'harness', 'saxml_ext', 'serve'),
  *('tests', '__main__'),
)
_HELP = ('--help', '-help', '-h')  # absl handles --helpfull.
_VERSION = ('--version', '-version')
_COLUMNS = 80


def run(
  main: Callable[[list[str]], Any],
  argv: Sequence[str] | None = None,
  takes_words: bool = False,
  hints: Mapping[str, str] = types.MappingProxyType({}),
) -> None:
  """Runs `main` after the flags are parsed.

  --help and --version exit with 0. Arguments without effect exit with 1: a word
  that is not a flag, and a flag whose rule (`flag_rules`) does not hold.

  Args:
    main: The function to run. It gets the program's name and the arguments that
      are not flags. It returns the exit code, or None for 0.
    argv: The command line; by default, that of this process.
    takes_words: True if `main` uses arguments that are not flags.
    hints: The remedies for flags that other programs have, by flag.
  """
  words = list(sys.argv if argv is None else argv)
  options = words[1 : words.index('--')] if '--' in words else words[1:]
  if any(word in _HELP for word in options):
    print(_help(main))
    sys.exit(0)
  if any(word in _VERSION for word in options):
    print(version_text())
    sys.exit(0)

  def checked(rest: list[str]) -> Any:
    problems = flag_rules.problems(rest[1:])
    if rest[1:] and not takes_words:
      problems.append(f'unexpected argument {rest[1]!r}')
    if problems:
      sys.exit(f'{_name()}: {" ".join(problems)}')
    return main(rest)

  def parsed(args: list[str]) -> list[str]:
    try:
      return flags.FLAGS(args)
    except flags.Error as e:
      flag = getattr(e, 'flagname', '')
      hint = hints.get(flag) or hints.get(
        flag.replace('-', '_'), 'To see all flags, use --help'
      )
      text = f'{str(e).rstrip(".")}.'.replace(' ?.', '?')
      sys.exit(f'{_name()}: {text} {hint}.')

  app.run(checked, argv=words, flags_parser=parsed)


def underscored(
  argv: Sequence[str], known: flags.FlagValues = flags.FLAGS
) -> list[str]:
  """Replaces the dashes in the names of known flags by underscores.

  Words that do not name a known flag stay as they are, and so do all words
  after a lone `--`. Values keep their dashes.

  Args:
    argv: The name of the program and its arguments.
    known: The flags that are defined.

  Returns:
    The new command line.
  """
  words = list(argv[:1])
  rest = iter(argv[1:])
  for word in rest:
    if word == '--':
      return [*words, word, *rest]
    words.append(_underscored(word, known))
  return words


def _underscored(word: str, known: flags.FlagValues) -> str:
  typed, equals, value = word.partition('=')
  name = typed.lstrip('-').replace('-', '_')
  # absl turns a boolean flag off with --noflag, argparse with --no-flag.
  positive = name.removeprefix('no').removeprefix('_')
  if typed.startswith('-') and name in known:
    return f'--{name}{equals}{value}'
  negative = typed.startswith(('-no', '--no')) and positive in known
  if negative and known[positive].boolean:
    return f'--no{positive}{equals}{value}'
  return word


@contextlib.contextmanager
def exit_on(
  name: str,
  kinds: tuple[type[Exception], ...] = (OSError, ValueError),
  text: Callable[[Exception], str] = str,
) -> Iterator[None]:
  """Exits with 1 and a message if an error of `kinds` is raised.

  Args:
    name: The name of the program, which begins the message.
    kinds: The types of errors that need no traceback.
    text: A function that returns the message of an error.
  """
  try:
    yield
  except kinds as error:
    raise SystemExit(f'{name}: {text(error)}') from error


def version_text() -> str:
  """Returns the output of --version: the version and the commit."""
  return f'gptj-sax {VERSION} ({commit() or "commit unknown"})'


def commit() -> str:
  """Returns the commit of the sources, or '' if it is unknown.

  The commit is read from the checkout that has the sources. It is not part of a
  build, so that the outputs of a build do not change with it. In an image,
  COMMIT_VARIABLE has it, and a suffix "-dirty" if the checkout had changes.
  """
  # The runfiles link to the sources. Only this directory is checked, because a
  # parent may be another checkout in which this code is installed.
  root = pathlib.Path(os.path.realpath(__file__)).parents[2]
  git = os.path.join(root, '.git')
  try:
    if os.path.isfile(git):  # In a worktree, it names the directory.
      git = os.path.join(root, _text(git).removeprefix('gitdir: '))
    head = _text(os.path.join(git, 'HEAD'))
    if not head.startswith('ref: '):
      return head[:12]
    reference = head.removeprefix('ref: ')
    common = os.path.join(git, 'commondir')
    if os.path.isfile(common):
      git = os.path.join(git, _text(common))
    loose = os.path.join(git, reference)
    if os.path.isfile(loose):
      return _text(loose)[:12]
    for line in _text(os.path.join(git, 'packed-refs')).splitlines():
      if line.endswith(f' {reference}'):
        return line[:12]
  except OSError:
    pass  # The sources are not in a readable checkout.
  known, dash, suffix = os.environ.get(COMMIT_VARIABLE, '').partition('-')
  return known[:12] + dash + suffix


def _text(path: str) -> str:
  with open(path, encoding='utf-8') as file:
    return file.read().strip()


def _name() -> str:
  """Returns the program's name: its folder's name if it is a main.py."""
  path = pathlib.Path(sys.argv[0])
  return path.parent.name if path.stem == 'main' else path.stem


def _help(main: Callable[[list[str]], Any]) -> str:
  """Returns the program's docstring and its own flags, grouped by module."""
  docs = sys.modules[main.__module__].__doc__ or ''
  lines = [docs.strip().replace('{program}', _name())]
  groups = flags.FLAGS.flags_by_module_dict()
  own = {
    module: flag_values
    for module, flag_values in groups.items()
    if module.split('.')[0] in _OWN or module == sys.argv[0]
  }
  # The program's own flags come first, then the shared ones.
  first = (main.__module__, '__main__', sys.argv[0])
  for module in sorted(own, key=lambda m: (m not in first, m)):
    title = 'Flags' if module in first else f'Flags of {module}'
    lines += ['', f'{title}:']
    for flag in sorted(own[module], key=lambda f: f.name):
      lines += _flag(flag)
  lines += [
    '',
    "Every program also has --help, --version, and absl's --v (verbosity),"
    ' --logtostderr and --flagfile.',
  ]
  return '\n'.join(lines)


def _flag(flag: flags.Flag) -> list[str]:
  default = (flag.default_as_str or '').strip("'")
  shown = f'--[no]{flag.name}' if flag.boolean else f'--{flag.name}'
  if default and not flag.boolean:
    shown += f' (default {default})'
  elif flag.boolean and flag.default is not None:
    shown += f' (default {"on" if flag.default else "off"})'
  text = ' '.join((flag.help or '').split())
  indent = ' ' * 6
  return [
    f'  {shown}',
    *textwrap.wrap(
      text, _COLUMNS, initial_indent=indent, subsequent_indent=indent
    ),
  ]
