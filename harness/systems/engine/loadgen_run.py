"""One LoadGen run against the JAX engine.

Both run in this process; with --network=sut the engine alone, for a LoadGen on
another machine.
"""

from collections.abc import Sequence

from absl import app
from absl import flags
from absl import logging

from harness.network import program
from harness.systems.engine import subject


def main(argv: Sequence[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments {" ".join(argv[1:])}')
  if not flags.FLAGS['verbosity'].present:
    logging.set_verbosity(logging.INFO)  # A load may take minutes.
  program.main(subject.make, subject.load, subject.name())


if __name__ == '__main__':
  program.mark_flags_as_required(())
  app.run(main)
