"""Defines manifest.json, which describes a program set and its target.

A compiled program runs only with the devices, settings, versions and shapes
that it was compiled for. Its bytes do not contain them, so the manifest records
them. The manifest has no times, host names or paths of the machine that wrote
it. The same sources and flags therefore give the same bytes on any machine.
"""

from collections.abc import Mapping
import dataclasses
import json
from typing import Any

from saxml_ext.aot import strict_json
from saxml_ext.common import files
from saxml_ext.engine import config as config_lib

# Increase this if a reader of the old format would misread the new one.
FORMAT = 1
NAME = 'manifest.json'

# The kinds of files of a program.
EXECUTABLE = 'executable'  # The program for the device.
STABLEHLO = 'stablehlo'  # The uncompiled program, from jax.export.
OPTIMIZED_HLO = 'optimized_hlo'  # The program that XLA optimized, as text.


# A key of `Configuration.versions`.
ENGINE = 'engine'


@dataclasses.dataclass(frozen=True)
class File:
  """A file of a set.

  Attributes:
    path: The path below the set's directory, with forward slashes.
    sha256: The hash of the content, as 64 hexadecimal digits.
    bytes: The size.
  """

  path: str
  sha256: str
  bytes: int


@dataclasses.dataclass(frozen=True)
class Memory:
  """The memory of a program on each device in bytes, reported by the compiler.

  Attributes:
    peak: The maximum at any time, including arguments and results; 0 if
      unknown.
    arguments: The size of the arguments, which are weights and state.
    temporaries: The memory in addition to arguments and results.
    outputs: The size of the results.
    aliased: The part of the results that overwrites arguments.
    code: The size of the program itself.
  """

  peak: int
  arguments: int
  temporaries: int
  outputs: int
  aliased: int
  code: int


@dataclasses.dataclass(frozen=True)
class Program:
  """A compiled program.

  Attributes:
    key: The str() of its `executables.Key`.
    dropped: The indices of the unused arguments, which callers leave out. The
      indices count the leaves of all arguments.
    memory: The memory of the program.
    files: The files by kind. An EXECUTABLE is always included.
  """

  key: str
  dropped: tuple[int, ...]
  memory: Memory
  files: Mapping[str, File]

  def __post_init__(self) -> None:
    if EXECUTABLE not in self.files:
      raise ValueError(f'program {self.key!r} has no file {EXECUTABLE!r}')


@dataclasses.dataclass(frozen=True)
class Target:
  """The properties of devices that compiled code depends on.

  Attributes:
    platform: JAX's name of the platform: "cpu", "tpu" or "cuda".
    kind: The kind of device, such as "TPU v5 lite", or a CPU's architecture.
    devices: The number of devices that a program runs on.
    bounds: The extent of the devices' coordinates, such as (2, 2, 1), for a
      TPU.
    host_bounds: The extent of the coordinates of one host's devices, for a TPU.
    features: The sorted instruction sets, for a CPU.
    threads: The number of cores that a program is split for, for a CPU;
      otherwise 0.
  """

  platform: str
  kind: str
  devices: int
  bounds: tuple[int, ...] = ()
  host_bounds: tuple[int, ...] = ()
  features: tuple[str, ...] = ()
  threads: int = 0


@dataclasses.dataclass(frozen=True)
class Leaf:
  """One array of the weights.

  Attributes:
    shape: The shape of the whole array.
    dtype: The dtype's name in NumPy.
    spec: The mesh axes that split each dimension, joined by "+", or None for a
      dimension that is not split. Empty without a mesh.
  """

  shape: tuple[int, ...]
  dtype: str
  spec: tuple[str | None, ...] = ()


@dataclasses.dataclass(frozen=True)
class Serving:
  """The serving params of a set.

  Attributes:
    model_path: The registered name.
    overrides: The overridden attributes and their values as JSON.
  """

  model_path: str
  overrides: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Configuration:
  """All inputs of compilation that the programs of a set have in common.

  Attributes:
    serving: The serving params.
    target: The devices.
    versions: The versions of jax, jaxlib, the device's runtime and the engine's
      sources; see `configuration.py`.
    mesh: The sizes of the mesh's axes [replica, data, model]; empty for one
      device without a mesh.
    model: The sizes of the model.
    engine: The settings of the engine.
    weights: The arrays, by their path in `weights.Weights`.
  """

  serving: Serving
  target: Target
  versions: Mapping[str, str]
  mesh: tuple[int, ...]
  model: config_lib.ModelConfig
  engine: config_lib.EngineConfig
  weights: Mapping[str, Leaf]


@dataclasses.dataclass(frozen=True)
class Manifest:
  """The content of manifest.json.

  Attributes:
    format: The version of the format, FORMAT.
    configuration: The configuration that the set was compiled for.
    xla_flags: The options of the compiler and their values.
    programs: The programs, sorted by key.
  """

  format: int
  configuration: Configuration
  xla_flags: Mapping[str, str]
  programs: tuple[Program, ...]

  def program(self, key: str) -> Program | None:
    """Returns the program with a key, or None if the set does not have it."""
    return next((p for p in self.programs if p.key == key), None)


def dumps(manifest: Manifest) -> str:
  """Returns the manifest as JSON. Equal manifests give equal text."""
  return files.encode_json(manifest, indent=1, sort_keys=True)


def loads(text: str | bytes) -> Manifest:
  """Reads the output of `dumps`.

  Raises:
    ValueError: The text is not a manifest, or has another format.
  """
  head = files.decode_json(text, Any, 'it')
  version = head.get('format') if isinstance(head, dict) else None
  if version != FORMAT:
    raise ValueError(
      f'its format is {version!r}, but this program reads {FORMAT}. Build the'
      ' set again with the compiler of this version.'
    )
  manifest = strict_json.parse(head, Manifest)
  keys = [p.key for p in manifest.programs]
  if keys != sorted(set(keys)):
    raise ValueError('its programs are not sorted, or have equal keys')
  return manifest


def differences(made_for: Configuration, here: Configuration) -> list[str]:
  """Returns the differences that prevent a set from being used, as text.

  The serving params are not compared. Their effects are in the other fields.

  Args:
    made_for: The set's configuration.
    here: The configuration of this machine and of the model to serve.
  """
  same = dataclasses.replace(made_for, serving=here.serving)
  values = strict_json.differences(*map(strict_json.plain, (same, here)))
  return [f'{path}: {_words(a, b)}' for path, a, b in values]


def only_versions_differ(made_for: Configuration, here: Configuration) -> bool:
  """Returns True if programs can still be compiled from the set's StableHLO.

  This requires that only the versions of JAX and of the device's runtime
  differ. The engine's sources must be the same, because they determine the
  computation.
  """
  same = dataclasses.replace(made_for, versions=here.versions)
  same_engine = made_for.versions.get(ENGINE) == here.versions.get(ENGINE)
  return same_engine and not differences(same, here)


def _words(made_for: Any, here: Any) -> str:
  """Returns the difference between two values as text."""
  both = (made_for, here)
  if all(isinstance(x, list) for x in both) and all(
    isinstance(name, str) for x in both for name in x
  ):
    lacking = ', '.join(x for x in made_for if x not in here)
    more = ', '.join(x for x in here if x not in made_for)
    parts = (
      lacking and f'the set has {lacking}, which is missing here',
      more and f'the set lacks {more}, which is present here',
    )
    return '; '.join(filter(None, parts))
  a, b = (
    'nothing' if x is None else json.dumps(x, sort_keys=True) for x in both
  )
  return f'the set has {a}, here it is {b}'
