"""One LoadGen run against the reference implementation.

Both run in this process; with --network=sut the reference alone, for a LoadGen
on another machine.
"""

from collections.abc import Sequence

from absl import app
import transformers

from harness.network import program
from harness.systems.reference import subject


def main(argv: Sequence[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments {" ".join(argv[1:])}')
  transformers.utils.logging.disable_progress_bar()
  program.main(subject.make, subject.load, subject.name())


if __name__ == '__main__':
  program.mark_flags_as_required(())
  app.run(main)
