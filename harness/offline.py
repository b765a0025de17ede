"""The MLPerf Offline scenario, end to end, by one command.

Starts a Sax cell on this machine with the bundled model (or uses a running
one), lets LoadGen ask it for summaries, scores them, and prints LoadGen's
summary and ROUGE beside the reference's.

Exit code 0 means that LoadGen calls the run VALID, that ROUGE is within the
tolerance, and, for a model in float32, that every answer is the reference's.
"""

from collections.abc import Sequence

from harness.rules import rounds
from harness.scenarios import program
from saxml_ext.common import program as program_lib


def main(argv: Sequence[str]) -> int:
  return program.run('offline', [rounds.OFFLINE], argv)


if __name__ == '__main__':
  program_lib.run(main)
