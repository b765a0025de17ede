"""What a program set holds, and what it was compiled for: its manifest.json.

A compiled program runs on the devices, and with the settings, versions and
shapes that it was compiled for; nothing in its bytes can be asked for these.
So they stand beside it. The manifest has no times, host names or paths of the
machine that wrote it: the same sources and flags give the same bytes anywhere.
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
    path: below the set's directory, with forward slashes.
    sha256: of its content, 64 hexadecimal digits.
    bytes: its size.
  """

  path: str
  sha256: str
  bytes: int


@dataclasses.dataclass(frozen=True)
class Memory:
  """What a program takes on each device, in bytes, as its compiler says.

  Attributes:
    peak: the most at any time, arguments and results included; 0: not told.
    arguments: weights and state that it is called with.
    temporaries: beside arguments and results.
    outputs: results.
    aliased: the part of the results that is written in place of arguments.
    code: the program itself.
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
    key: str() of its `executables.Key`.
    dropped: which of its arguments, counted through all their leaves, it does
      not use and is not given.
    memory: what it takes.
    files: by kind; an EXECUTABLE always.
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
    kind: of a device, such as "TPU v5 lite"; of a CPU its architecture.
    devices: how many a program runs on.
    bounds: of a TPU the extent of the devices' coordinates, such as (2, 2, 1).
    host_bounds: the same of one host's devices.
    features: of a CPU the instruction sets that it has, sorted.
    threads: of a CPU the cores that a program is cut up for; else 0.
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
    shape: of the whole.
    dtype: NumPy's name.
    spec: per dim the mesh axes that split it, joined by "+"; None: none does.
      Empty without a mesh.
  """

  shape: tuple[int, ...]
  dtype: str
  spec: tuple[str | None, ...] = ()


@dataclasses.dataclass(frozen=True)
class Serving:
  """The serving params that a set is for.

  Attributes:
    model_path: their registered name.
    overrides: attribute -> value as JSON.
  """

  model_path: str
  overrides: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Configuration:
  """All that a program depends on, apart from which one it is.

  Attributes:
    serving: the serving params.
    target: the devices.
    versions: package -> version: jax, jaxlib, the device's runtime, and the
      engine's own sources; see `configuration.py`.
    mesh: sizes of its axes [replica, data, model]; empty: one device, without
      a mesh.
    model: sizes of the model.
    engine: how it is run.
    weights: place in `weights.Weights` -> array.
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
    configuration: what it was compiled for.
    xla_flags: options that the compiler was given -> value.
    programs: by key, sorted.
  """

  format: int
  configuration: Configuration
  xla_flags: Mapping[str, str]
  programs: tuple[Program, ...]

  def program(self, key: str) -> Program | None:
    """The program of that key; None: the set has none."""
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
