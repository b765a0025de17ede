"""Runs the model server's program, alone or in a group, with instant engines.

All other parts are those of users: flags, formation, log, barriers, services,
scheduler and membership in the cell. No checkpoint is read. In a group, each
step of an engine needs all processes, see `collective_runner`.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses

from absl import flags
import jax

from saxml_ext.common import program
from saxml_ext.params import settings as settings_lib
from saxml_ext.server import server
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.loading import servable
from saxml_ext.server.vocabulary import codec
from tests.engines import stand_in
from tests.groups import collective_runner

_STEP_SECS = flags.DEFINE_float(
  'step_secs', 0.0, 'The duration of a step of an engine.', lower_bound=0
)
_COMPLETED = flags.DEFINE_string(
  'completed', None, 'The file for a line per answered prompt.'
)


@dataclasses.dataclass(frozen=True)
class _Prepared:
  """An instant engine with the interface of `prepared.Prepared`."""

  identity: Mapping[str, str]
  settings: settings_lib.Settings
  codecs: codec.Codecs

  def start(self) -> collective_runner.CollectiveRunner:
    return collective_runner.CollectiveRunner(
      self.settings.engine.num_slots, _STEP_SECS.value, _COMPLETED.value
    )


def _prepare(spec: entry_lib.Spec) -> _Prepared:
  identity = {'params': spec.model_path, 'devices': str(jax.device_count())}
  return _Prepared(identity, *stand_in.model(spec))


def _load(
  spec: entry_lib.Spec, on_failure: Callable[[str], None]
) -> servable.Servable:
  prepared = _prepare(spec)
  return servable.serve(
    prepared.settings, prepared.codecs, prepared.start(), on_failure
  )


def main(argv: Sequence[str]) -> None:
  server.main(argv, lambda _: _load, prepare=_prepare)


if __name__ == '__main__':
  program.run(main)
