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


def run(
  main: Callable[[Sequence[str]], Any],
  hints: Mapping[str, str] = types.MappingProxyType({}),
) -> None:
  """Runs `main` as program.run does, but accepts both spellings of flags.

  Flags may also follow the arguments.
  """
  flags.FLAGS.set_gnu_getopt(True)
  program.run(
    main, program.underscored(sys.argv), takes_words=True, hints=hints
  )
