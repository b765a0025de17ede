"""Runs the MLPerf Offline scenario end to end with one command.

It starts a Sax cell with the bundled model on this machine, or uses a running
cell. LoadGen requests summaries from the cell, and the program scores them. It
prints LoadGen's summary and the ROUGE scores beside those of the reference.

Exit code 0 means that LoadGen reports a VALID run and that ROUGE is within the
tolerance. For a model in float32, every answer must also equal the reference's.
"""

from collections.abc import Sequence
import sys

from harness.rules import rounds
from harness.scenarios import program
from saxml_ext.common import program as program_lib


def main(argv: Sequence[str]) -> int:
  return program.run('offline', [rounds.OFFLINE], argv)


if __name__ == '__main__':
  program_lib.run(main, hints=program.hints(sys.argv))
