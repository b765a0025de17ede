"""A model that is ready to start, and its identity for a group.

The processes of a group run the same programs in step. A difference between
them would not raise an error, but lead to a hang or to wrong answers. So they
first compare `Prepared.identity`.
"""

from collections.abc import Mapping
import dataclasses
import hashlib
import json
import os

from saxml_ext.aot import configuration
from saxml_ext.aot import serialization
from saxml_ext.engine import executables
from saxml_ext.engine import runner as runner_lib
from saxml_ext.params import settings as settings_lib
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.programs import programs as programs_lib
from saxml_ext.server.vocabulary import codec

# Compiler flags can change the order in which the programs of several devices
# communicate.
_FLAGS = ('XLA_FLAGS', 'LIBTPU_INIT_ARGS')
_DIGITS = 16


@dataclasses.dataclass(frozen=True)
class Prepared:
  """A model with its weights and programs, which has not run yet.

  Attributes:
    settings: The settings of its params.
    codecs: The codecs of its texts.
    identity: The properties that must be equal in all processes of a group, as
      a mapping from a name to a short text.
    run: The programs and weights.
  """

  settings: settings_lib.Settings
  codecs: codec.Codecs
  identity: Mapping[str, str]
  run: executables.Executables

  def start(self) -> runner_lib.Runner:
    """Runs the first program and returns the engine; all processes call it."""
    return runner_lib.Runner.start(self.run)


def identity(
  spec: entry_lib.Spec,
  checkpoint: str,
  run: executables.Executables,
  source: programs_lib.Source | None,
) -> dict[str, str]:
  """Returns the properties that must be equal in all processes of a group.

  Args:
    spec: The model that was requested.
    checkpoint: The fingerprint of the checkpoint, see
      `StoredModel.fingerprint`.
    run: The programs of the model.
    source: The precompiled programs; None if they were compiled here.
  """
  versions = configuration.versions(serialization.devices(run)[0])
  overrides = json.dumps(dict(spec.overrides), sort_keys=True)
  engine = repr((run.settings.model, run.settings.engine))
  keys = '\n'.join(sorted(map(str, run.keys())))
  origin = 'compiled'
  if source is not None and source.opened is not None:
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
  """Describes the devices and their order."""
  devices = serialization.devices(run)
  hosts = len({device.process_index for device in devices})
  ids = repr([(device.process_index, device.id) for device in devices])
  shape = [] if run.mesh is None else list(run.mesh.devices.shape)
  return (
    f'{shape} of {len(devices)} {devices[0].device_kind} on {hosts} hosts'
    f' ({_digest(ids)})'
  )


def _digest(text: str) -> str:
  return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def _line(text: str) -> str:
  return ' '.join(text.split())
