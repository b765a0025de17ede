"""Runs programs whose flags may be typed as --some-flag or as --some_flag.

The published programs of the benchmark use argparse and dashes. Sax and this
repository use absl and underscores. Users paste commands of both kinds.
"""

from collections.abc import Callable, Mapping, Sequence
import sys
import types
from typing import Any

from absl import flags

from saxml_ext.common import program

exit_on = program.exit_on


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
  if not word.startswith('-'):
    return word
  typed, equals, value = word.partition('=')
  name = typed.lstrip('-')
  flag = name.replace('-', '_')
  # absl turns a boolean flag off with --noflag, argparse with --no-flag.
  if not (flag in known or _is_negation(flag, known)):
    return word
  if flag not in known:
    flag = 'no' + flag.removeprefix('no').removeprefix('_')
  return f'--{flag}{equals}{value}'


def _is_negation(flag: str, known: flags.FlagValues) -> bool:
  positive = flag.removeprefix('no').removeprefix('_')
  return flag != positive and positive in known and known[positive].boolean


def run(
  main: Callable[[Sequence[str]], Any],
  hints: Mapping[str, str] = types.MappingProxyType({}),
) -> None:
  """Runs `main` as program.run does, but accepts both spellings of flags.

  Flags may also follow the arguments.
  """
  flags.FLAGS.set_gnu_getopt(True)
  program.run(main, underscored(sys.argv), takes_words=True, hints=hints)
