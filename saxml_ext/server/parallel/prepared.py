"""A model that is ready to start, and what a group must agree on before it does.

The processes of a group run the same programs in step, so a difference between
them would not show as an error but as a hang, or as wrong answers. They compare
`Prepared.identity` first.
"""

from collections.abc import Mapping
import dataclasses
import hashlib
import json
import os

import jax

from saxml_ext.aot import configuration
from saxml_ext.engine import executables
from saxml_ext.engine import runner as runner_lib
from saxml_ext.params import settings as settings_lib
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.programs import programs as programs_lib
from saxml_ext.server.vocabulary import codec

# Flags of the compiler, by which programs of several devices may come to talk
# to each other in another order.
_FLAGS = ('XLA_FLAGS', 'LIBTPU_INIT_ARGS')
_DIGITS = 16


@dataclasses.dataclass(frozen=True)
class Prepared:
  """A model with its weights and programs, which has not run yet.

  Attributes:
    settings: of its params.
    codecs: of its texts.
    identity: what all processes of a group must agree on: name -> a short text.
    run: its programs and weights.
  """

  settings: settings_lib.Settings
  codecs: codec.Codecs
  identity: Mapping[str, str]
  run: executables.Executables

  def start(self) -> runner_lib.Runner:
    """Its engine. Runs the first program: in a group, all must call it."""
    return runner_lib.Runner.start(self.run)


def identity(
  spec: entry_lib.Spec,
  checkpoint: str,
  run: executables.Executables,
  source: programs_lib.Source | None,
) -> dict[str, str]:
  """What the processes of a group must agree on.

  Args:
    spec: what was asked for.
    checkpoint: tells it from others, see `StoredModel.fingerprint`.
    run: the model's programs.
    source: where they were taken from; None: they were compiled here.
  """
  device = _devices(run)[0]
  versions = configuration.versions(device)
  overrides = json.dumps(dict(spec.overrides), sort_keys=True)
  engine = repr((run.settings.model, run.settings.engine))
  keys = '\n'.join(sorted(map(str, run.keys())))
  origin = 'compiled'
  if source is not None:
    origin = f'of the set {source.fingerprint[:_DIGITS]}'
  return {
    'params': f'{spec.model_path} with overrides {overrides}',
    'checkpoint': checkpoint,
    'sizes': _digest(engine),
    'mesh': _mesh(run),
    'programs': f'{len(run.keys())} ({_digest(keys)}) {origin}',
    'version': ', '.join(f'{k} {_line(v)}' for k, v in versions.items()),
    'flags': ' '.join(f'{k}={os.environ.get(k, "")}' for k in _FLAGS),
  }


def _mesh(run: executables.Executables) -> str:
  """The devices and their order."""
  devices = _devices(run)
  hosts = len({device.process_index for device in devices})
  ids = repr([(device.process_index, device.id) for device in devices])
  shape = [] if run.mesh is None else list(run.mesh.devices.shape)
  return (
    f'{shape} of {len(devices)} {devices[0].device_kind} on {hosts} hosts'
    f' ({_digest(ids)})'
  )


def _devices(run: executables.Executables) -> list[jax.Device]:
  return jax.devices()[:1] if run.mesh is None else list(run.mesh.devices.flat)


def _digest(text: str) -> str:
  return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def _line(text: str) -> str:
  return ' '.join(text.split())
