"""Runs the MLPerf MultiStream scenario end to end; see offline.py."""

from collections.abc import Sequence
import sys

from harness.rules import rounds
from harness.scenarios import program
from saxml_ext.common import program as program_lib


def main(argv: Sequence[str]) -> int:
  return program.run('multi_stream', [rounds.MULTI_STREAM], argv)


if __name__ == '__main__':
  program_lib.run(main, hints=program.hints(sys.argv))
