"""One LoadGen run against the JAX engine.

Both run in this process; with --network=sut the engine alone, for a LoadGen on
another machine.
"""

from collections.abc import Sequence

from absl import flags
from absl import logging

from harness.network import network_program
from harness.systems.engine import engine_by_flags
from saxml_ext.common import program as program_lib


def main(argv: Sequence[str]) -> None:
  del argv
  if not flags.FLAGS['verbosity'].present:
    logging.set_verbosity(logging.INFO)  # A load may take minutes.
  network_program.main(
    engine_by_flags.make, engine_by_flags.load, engine_by_flags.name()
  )


if __name__ == '__main__':
  network_program.mark_flags_as_required(())
  program_lib.run(main)
