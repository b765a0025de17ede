"""The MLPerf Server scenario, end to end, by one command; see offline.py."""

from collections.abc import Sequence

from absl import app

from harness.loadgen import rounds
from harness.scenarios import program


def main(argv: Sequence[str]) -> int:
  return program.run('server', [rounds.SERVER], argv)


if __name__ == '__main__':
  app.run(main)
