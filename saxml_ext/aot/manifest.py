"""Describes a program set and what it was compiled for: its manifest.json.

A compiled program runs only on the devices, and with the settings, versions and
shapes that it was compiled for. Its bytes do not tell them, so the manifest
does. The manifest has no times, host names or paths of the machine that wrote
it: the same sources and flags give the same bytes anywhere.
"""

from collections.abc import Mapping
import dataclasses
import json
from typing import Any

from saxml_ext.aot import strict_json
from saxml_ext.common import files
from saxml_ext.engine import config as config_lib

# Raised when a reader of the old form would misunderstand the new one.
FORMAT = 1
NAME = 'manifest.json'

# Kinds of files of a program.
EXECUTABLE = 'executable'  # What the device runs.
STABLEHLO = 'stablehlo'  # The program before it was compiled, by jax.export.
OPTIMIZED_HLO = 'optimized_hlo'  # What XLA made of it, as text.


# Names of versions.
ENGINE = 'engine'


@dataclasses.dataclass(frozen=True)
class File:
  """A file of a set.

  Attributes:
    path: The path below the set's directory, with forward slashes.
    sha256: The hash of its content, 64 hexadecimal digits.
    bytes: The size.
  """

  path: str
  sha256: str
  bytes: int


@dataclasses.dataclass(frozen=True)
class Memory:
  """The memory of a program on each device, in bytes, by its compiler.

  Attributes:
    peak: The most at any time, arguments and results included; 0: not known.
    arguments: The weights and the state that it is called with.
    temporaries: The memory beside arguments and results.
    outputs: The results.
    aliased: The part of the results that is written in place of arguments.
    code: The program itself.
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
    dropped: The indices of the arguments, counted through all their leaves,
      that it does not use and is not given.
    memory: The memory.
    files: The files by kind; always an EXECUTABLE.
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
  """Devices, as far as compiled code depends on them.

  Attributes:
    platform: JAX's name: "cpu", "tpu" or "cuda".
    kind: The kind of device, such as "TPU v5 lite"; for a CPU its architecture.
    devices: The number of devices that a program runs on.
    bounds: For a TPU the extent of the devices' coordinates, such as (2, 2, 1).
    host_bounds: The same for one host's devices.
    features: For a CPU its instruction sets, sorted.
    threads: For a CPU the cores that a program is cut up for; else 0.
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
    dtype: NumPy's name.
    spec: The mesh axes that split each dim, joined by "+"; None: none does.
      Empty without a mesh.
  """

  shape: tuple[int, ...]
  dtype: str
  spec: tuple[str | None, ...] = ()


@dataclasses.dataclass(frozen=True)
class Serving:
  """The serving params that a set is for.

  Attributes:
    model_path: The registered name.
    overrides: The attributes -> values as JSON.
  """

  model_path: str
  overrides: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Configuration:
  """All that a program depends on, apart from which one it is.

  Attributes:
    serving: The serving params.
    target: The devices.
    versions: The packages -> versions: jax, jaxlib, the device's runtime, and
      the engine's own sources; see `configuration.py`.
    mesh: The sizes of its axes [replica, data, model]; empty: one device,
      without a mesh.
    model: The sizes of the model.
    engine: The settings of the engine.
    weights: The places in `weights.Weights` -> arrays.
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
  """A program set.

  Attributes:
    format: FORMAT.
    configuration: The configuration that it was compiled for.
    xla_flags: The options that the compiler was given -> values.
    programs: The programs, sorted by key.
  """

  format: int
  configuration: Configuration
  xla_flags: Mapping[str, str]
  programs: tuple[Program, ...]

  def program(self, key: str) -> Program | None:
    """Returns the program of that key; None if the set has none."""
    return next((p for p in self.programs if p.key == key), None)


def dumps(manifest: Manifest) -> str:
  """Returns the manifest as JSON; equal manifests give equal text."""
  return files.encode_json(manifest, indent=1, sort_keys=True)


def loads(text: str | bytes) -> Manifest:
  """Reads what `dumps` wrote.

  Raises:
    ValueError: It is not that, or of another format.
  """
  head = files.decode_json(text, Any, 'it')
  found = head.get('format') if isinstance(head, dict) else None
  if found != FORMAT:
    raise ValueError(
      f'its format is {found!r}, and this program reads {FORMAT}: build the'
      ' set again with the compiler of this version'
    )
  manifest = strict_json.parse(head, Manifest)
  keys = [p.key for p in manifest.programs]
  if keys != sorted(set(keys)):
    raise ValueError('its programs are not sorted by key, each key once')
  return manifest


def differences(made_for: Configuration, here: Configuration) -> list[str]:
  """Returns what keeps a set from being used, in words; empty if nothing does.

  The serving params are not compared: they count by what they make of the rest.

  Args:
    made_for: The set's configuration.
    here: The configuration of the machine and of the model to be served.
  """
  same = dataclasses.replace(made_for, serving=here.serving)
  found = strict_json.differences(*map(strict_json.plain, (same, here)))
  return [f'{place}: {_words(a, b)}' for place, a, b in found]


def only_versions_differ(made_for: Configuration, here: Configuration) -> bool:
  """Returns whether programs can still be compiled from the set's StableHLO.

  They can where nothing differs but the versions of JAX and of the device's
  runtime. The engine's sources decide what a program computes: they must not.
  """
  same = dataclasses.replace(made_for, versions=here.versions)
  same_engine = made_for.versions.get(ENGINE) == here.versions.get(ENGINE)
  return same_engine and not differences(same, here)


def _words(made_for: Any, here: Any) -> str:
  """Returns how two values differ, in words."""
  both = (made_for, here)
  if all(isinstance(x, list) for x in both) and all(
    isinstance(name, str) for x in both for name in x
  ):
    lacking = ', '.join(f'no {x}' for x in made_for if x not in here)
    more = ', '.join(x for x in here if x not in made_for)
    parts = (
      lacking and f'here is {lacking}, which the set has',
      more and f'here is {more}, which the set does not have',
    )
    return '; '.join(filter(None, parts))
  a, b = (
    'nothing' if x is None else json.dumps(x, sort_keys=True) for x in both
  )
  return f'the set has {a}, here it is {b}'
