"""One LoadGen run against the reference implementation.

Both run in this process; with --network=sut the reference alone, for a LoadGen
on another machine.
"""

from collections.abc import Sequence

import transformers

from harness.network import network_program
from harness.systems.reference import reference_by_flags
from saxml_ext.common import program as program_lib


def main(argv: Sequence[str]) -> None:
  del argv
  transformers.utils.logging.disable_progress_bar()
  network_program.main(
    reference_by_flags.make, reference_by_flags.load, reference_by_flags.name()
  )


if __name__ == '__main__':
  network_program.mark_flags_as_required(())
  program_lib.run(main)
