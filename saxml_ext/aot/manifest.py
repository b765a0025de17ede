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
  """The manifest as JSON; equal manifests give equal text."""
  return strict_json.dumps(manifest)


def loads(text: str | bytes) -> Manifest:
  """Reads what `dumps` wrote.

  Raises:
    ValueError: it is not that, or of another format.
  """
  head = strict_json.decode(text)
  found = head.get('format') if isinstance(head, dict) else None
  if found != FORMAT:
    raise ValueError(
      f'its format is {found!r}, and this program reads {FORMAT}: build the'
      ' set again with the compiler of this version'
    )
  manifest = strict_json.parse(Manifest, head, '')
  keys = [p.key for p in manifest.programs]
  if keys != sorted(set(keys)):
    raise ValueError('its programs are not sorted by key, each key once')
  return manifest


def differences(made_for: Configuration, here: Configuration) -> list[str]:
  """What keeps a set from being used, in words; empty: nothing does.

  The serving params are not compared: they count by what they make of the rest.

  Args:
    made_for: the set's configuration.
    here: that of the machine and of the model to be served.
  """
  left, right = (
    strict_json.plain(dataclasses.replace(c, serving=_ANY))
    for c in (made_for, here)
  )
  return [
    f'{place}: {_words(a, b)}'
    for place, a, b in strict_json.compare(left, right)
  ]


def only_versions_differ(made_for: Configuration, here: Configuration) -> bool:
  """Whether programs can still be compiled from the set's StableHLO.

  They can where nothing differs but the versions of JAX and of the device's
  runtime. The engine's sources decide what a program computes: they must not.
  """
  versions = {**here.versions, ENGINE: made_for.versions.get(ENGINE, '')}
  same = dataclasses.replace(made_for, versions=here.versions)
  return versions == here.versions and not differences(same, here)


_ANY = Serving('', {})


def _words(made_for: Any, here: Any) -> str:
  """Says how two values differ."""
  if _is_names(made_for) and _is_names(here):
    lacking = [f'no {x}' for x in made_for if x not in here]
    more = [x for x in here if x not in made_for]
    parts = (
      ', '.join(lacking) and f'here is {", ".join(lacking)}, which the set has',
      ', '.join(more)
      and f'here is {", ".join(more)}, which the set does not have',
    )
    return '; '.join(filter(None, parts))
  return f'the set has {_shown(made_for)}, here it is {_shown(here)}'


def _is_names(value: Any) -> bool:
  return isinstance(value, list) and all(isinstance(x, str) for x in value)


def _shown(value: Any) -> str:
  return 'nothing' if value is None else json.dumps(value, sort_keys=True)
