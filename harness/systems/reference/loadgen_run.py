"""One LoadGen run against the reference implementation, in this process."""

from collections.abc import Sequence

from absl import app
import transformers

from harness.loadgen import runner
from harness.systems.reference import subject


def main(argv: Sequence[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments {" ".join(argv[1:])}')
  transformers.utils.logging.disable_progress_bar()
  runner.main(subject.make)


if __name__ == '__main__':
  runner.mark_flags_as_required()
  app.run(main)
