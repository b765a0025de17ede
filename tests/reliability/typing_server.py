"""Runs the model server's program with engines that answer token by token.

All other parts are those of users: flags, services, scheduler, codecs and
membership in the cell. No checkpoint is read.
"""

from collections.abc import Callable, Sequence

from absl import flags

from saxml_ext.common import program
from saxml_ext.engine import request as request_lib
from saxml_ext.server import server
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.loading import servable
from tests.engines import stand_in
from tests.reliability import typing_runner

_STEP_SECS = flags.DEFINE_float(
  'step_secs', 0.0, 'The duration of a step of an engine.', lower_bound=0
)
_NOTES = flags.DEFINE_string(
  'notes', None, 'The file for a line per action of an engine.'
)
_FAIL_AFTER = flags.DEFINE_integer(
  'fail_after',
  None,
  'The number of answers before an engine fails. Default: never.',
)


def _load(
  spec: entry_lib.Spec, on_failure: Callable[[str], None]
) -> servable.Servable:
  settings, codecs = stand_in.model(spec)
  engine = typing_runner.TypingRunner(
    settings.engine.num_slots,
    request_lib.Checks(settings.engine, stand_in.VOCAB_SIZE),
    _STEP_SECS.value,
    _NOTES.value,
    _FAIL_AFTER.value,
  )
  return servable.serve(settings, codecs, engine, on_failure)


def main(argv: Sequence[str]) -> None:
  server.main(argv, lambda _: _load)


if __name__ == '__main__':
  program.run(main)
