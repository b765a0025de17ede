"""Runs the MLPerf Interactive scenario end to end; see offline.py.

Of all benchmarks, only llama3.1-8b has this scenario, so it is the default of
--model.
"""

from collections.abc import Sequence
import sys

from absl import flags

from harness.rules import rounds
from harness.scenarios import job
from harness.scenarios import program
from saxml_ext.common import program as program_lib

flags.set_default(job.MODEL, 'llama3.1-8b')


def main(argv: Sequence[str]) -> int:
  return program.run('interactive', [rounds.INTERACTIVE], argv)


if __name__ == '__main__':
  program_lib.run(main, hints=program.hints(sys.argv))
