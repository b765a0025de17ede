"""Runs the model server's program with engines that answer at once.

All other parts are those of users: flags, services, scheduler, codecs and
membership in the cell. No checkpoint is read.
"""

from collections.abc import Callable, Sequence

from absl import flags

from saxml_ext.common import program
from saxml_ext.server import server
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.loading import servable
from tests.cell import instant_runner
from tests.engines import stand_in

_STEP_SECS = flags.DEFINE_float(
  'step_secs', 0.0, 'The duration of a step of an engine.', lower_bound=0
)
_COMPLETED = flags.DEFINE_string(
  'completed', None, 'The file for a line per answered prompt.'
)


def _load(
  spec: entry_lib.Spec, on_failure: Callable[[str], None]
) -> servable.Servable:
  settings, codecs = stand_in.model(spec)
  engine = instant_runner.InstantRunner(
    settings.engine.num_slots, _STEP_SECS.value, _COMPLETED.value
  )
  return servable.serve(settings, codecs, engine, on_failure)


def main(argv: Sequence[str]) -> None:
  server.main(argv, lambda _: _load)


if __name__ == '__main__':
  program.run(main)
