"""One LoadGen run against the JAX engine, in this process."""

from collections.abc import Sequence

from absl import app
from absl import flags
from absl import logging

from harness.loadgen import runner
from harness.systems.engine import subject


def main(argv: Sequence[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments {" ".join(argv[1:])}')
  if not flags.FLAGS['verbosity'].present:
    logging.set_verbosity(logging.INFO)  # A load may take minutes.
  runner.main(subject.make)


if __name__ == '__main__':
  runner.mark_flags_as_required()
  app.run(main)
