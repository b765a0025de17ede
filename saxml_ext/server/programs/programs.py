"""The program sets of a model server, and the choice of a model's set."""

from collections.abc import Callable, Collection, Sequence
import dataclasses
import hashlib
import os
import pathlib
import time

from absl import logging
import jax

from saxml_ext.aot import compile_set
from saxml_ext.aot import configuration
from saxml_ext.aot import manifest as manifest_lib
from saxml_ext.aot import program_set
from saxml_ext.common import errors
from saxml_ext.common import files
from saxml_ext.common import storage
from saxml_ext.engine import executables

# The actions for a model whose program set does not match.
REFUSE = 'refuse'
COMPILE = 'compile'
MISMATCH = (REFUSE, COMPILE)

# The file that describes a program of the cache.
_PROGRAM = 'program.json'

# XLA's option for the directory that keeps the results of its autotuner.
_TILINGS = 'xla_gpu_per_fusion_autotune_cache_dir'

# The maximum number of differences in a message, because one wrong size can
# cause hundreds.
_MOST = 5


@dataclasses.dataclass(frozen=True)
class Source:
  """The precompiled programs of a model; implements `executables.Ready`.

  Attributes:
    ready: A function that returns a program that was compiled before.
    opened: The program set; None for the cache.
    build: A function that compiles a program and adds it to the cache; None for
      a program set.
  """

  ready: executables.Ready
  opened: program_set.ProgramSet | None = None
  build: executables.Build | None = None

  def __call__(
    self, key: executables.Key, signature: executables.Signature
  ) -> Callable | None:
    """Returns a precompiled program, see `executables.Ready`."""
    return self.ready(key, signature)

  @property
  def fingerprint(self) -> str:
    """A hash that identifies a set, independent of its path; '' for none."""
    if self.opened is None:
      return ''
    text = manifest_lib.dumps(self.opened.manifest)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclasses.dataclass(frozen=True)
class _Cache:
  """The programs that this server compiles for one configuration.

  Attributes:
    path: The directory, with one directory for each program. On a GPU, the
      directory of the tilings is beside it.
    configuration: The configuration.
  """

  path: str
  configuration: manifest_lib.Configuration

  def load(
    self, key: executables.Key, signature: executables.Signature
  ) -> Callable | None:
    """Returns a program, or None if the cache has no usable one."""
    path = self._path_of(key)
    try:
      if os.path.exists(path):
        _check_private(self.path)
        _check_private(path, deep=True)
      text = storage.read_bytes(os.path.join(path, _PROGRAM))
      program = files.decode_json(text, manifest_lib.Program, path)
      manifest = manifest_lib.Manifest(
        manifest_lib.FORMAT, self.configuration, {}, (program,)
      )
      return program_set.ProgramSet(path, manifest).load(key, signature)
    except errors.NotFound:
      return None
    except (errors.FailedPrecondition, errors.InvalidArgument, ValueError) as e:
      logging.warning('%s is compiled again: %s', key, e)
      return None

  def build(
    self, run: executables.Executables, key: executables.Key
  ) -> Callable:
    """Compiles a program, and adds it to the cache."""
    compiled: list[jax.stages.Compiled] = []

    def keep(program: jax.stages.Compiled) -> dict[str, bytes]:
      compiled.append(program)
      return {}

    program, contents = compile_set.build(
      run, key, self._options(), False, keep
    )
    contents[_PROGRAM] = files.encode_json(program).encode()
    try:
      os.makedirs(self.path, mode=0o755, exist_ok=True)
      with files.new_directory(self._path_of(key), replace=True) as unfinished:
        os.chmod(unfinished, 0o755)
        for name, content in contents.items():
          file = pathlib.Path(unfinished, name)
          file.touch(0o644)
          file.write_bytes(content)
    except OSError as e:  # Another server may write it, or the disk is full.
      logging.warning('%s was not added to the cache: %s', key, e)
    return compiled[0]

  def _options(self) -> dict[str, str]:
    """Returns XLA's options: on a GPU, the directory of measured tilings.

    With it, XLA tries no tilings for products that it knows from other
    programs, such as those of fewer slots. XLA does not compare versions.
    """
    if self.configuration.target.platform != 'cuda':
      return {}
    name = f'tilings {self.configuration.versions["runtime"]}'.replace(' ', '_')
    path = os.path.join(os.path.dirname(self.path), name)
    try:
      os.makedirs(path, mode=0o755, exist_ok=True)
    except OSError as e:
      logging.warning('tilings are not kept: %s', e)
      return {}
    return {_TILINGS: path}

  def _path_of(self, key: executables.Key) -> str:
    return os.path.join(self.path, str(key).replace(' ', '_'))


@dataclasses.dataclass(frozen=True)
class Programs:
  """The program sets from which models take their programs.

  Attributes:
    sets: The program sets, in the order of the search.
    mismatch: The action, REFUSE or COMPILE, for a model whose own set does not
      match.
    cache: The directory of the sets that this server compiles itself, one for
      each configuration; '' for no cache.
  """

  sets: tuple[program_set.ProgramSet, ...] = ()
  mismatch: str = REFUSE
  cache: str = ''

  @classmethod
  def open(
    cls, paths: Sequence[str], mismatch: str = REFUSE, cache: str = ''
  ) -> 'Programs':
    """Reads the manifests of the sets at `paths`.

    Raises:
      errors.InvalidArgument: A path has no program set, or a damaged one, or
        another user may write its files or the cache.
    """
    for path in (*paths, cache):
      if path and not storage.is_url(path) and os.path.exists(path):
        _check_private(path, deep=path != cache)
    return cls(tuple(map(program_set.ProgramSet.open, paths)), mismatch, cache)

  def find(
    self, run: executables.Executables, serving: manifest_lib.Serving
  ) -> Source | None:
    """Returns the program set of a model; None if programs must be compiled.

    A set is used if it has the configuration of the model. The names of its
    params do not matter, because programs depend only on the configuration. If
    only the versions of JAX or of the device's runtime differ, the programs are
    compiled from the set's StableHLO, if it has any.

    Args:
      run: The programs of the model; shapes are sufficient for its weights.
      serving: The params with which the model is served.

    Raises:
      errors.FailedPrecondition: Sets were built for these params, but none of
        them matches, and `mismatch` is REFUSE.
    """
    if not self.sets:
      return self._cached(run, serving)
    begin = time.monotonic()
    here = configuration.from_executables(run, serving)
    keys = [str(key) for key in run.keys()]
    problems = {s.path: _differences(s, here, keys) for s in self.sets}
    for candidate in self.sets:
      if not problems[candidate.path]:
        logging.info(
          '%s uses the programs of %s (checked in %.1f s)',
          serving.model_path,
          candidate.path,
          time.monotonic() - begin,
        )
        return Source(candidate.load, candidate)
    for candidate in self.sets:
      if _only_versions_differ(candidate, here, keys):
        logging.warning(
          'the executables of %s are for other versions, so its programs are'
          ' compiled from StableHLO: %s',
          candidate.path,
          _joined(problems[candidate.path]),
        )
        return Source(candidate.compile, candidate)
    self._mismatched(serving, problems)
    return self._cached(run, serving)

  def _cached(
    self, run: executables.Executables, serving: manifest_lib.Serving
  ) -> Source | None:
    """Returns the model's programs in the cache, to which missing ones are added.

    It returns None if there is no cache or if several processes run the model.
    In the latter case, each process compiles its own programs.
    """
    if not self.cache or jax.process_count() > 1:
      return None
    # Programs depend on the whole configuration except for the names of the
    # params.
    here = configuration.from_executables(run, manifest_lib.Serving('', {}))
    digest = hashlib.sha256(repr(here).encode()).hexdigest()[:32]
    cache = _Cache(os.path.join(self.cache, digest), here)
    logging.info('%s uses the programs of %s', serving.model_path, cache.path)
    return Source(cache.load, build=cache.build)

  def _mismatched(
    self, serving: manifest_lib.Serving, problems: dict[str, list[str]]
  ) -> None:
    """Refuses a model whose sets do not match, or logs that it is compiled."""
    path = serving.model_path
    own = [
      s.path
      for s in self.sets
      if s.manifest.configuration.serving.model_path == path
    ]
    if not own:
      logging.info('%s has no program set, so it is compiled', path)
      return
    why = '. '.join(f'{s} does not match: {_joined(problems[s])}' for s in own)
    if self.mismatch == COMPILE:
      logging.warning('%s is compiled: %s', path, why)
      return
    raise errors.FailedPrecondition(
      f'the programs for {path} cannot be used and nothing was compiled: {why}.'
      ' Serve with the settings and on the devices that the set was built for,'
      ' build a set for these, or start the server with'
      f' --programs_mismatch={COMPILE}'
    )


NONE = Programs()


def _check_private(path: str, deep: bool = False) -> None:
  """Checks that no other user can write the machine code in a directory.

  Args:
    path: The directory.
    deep: True to check its files, too.

  Raises:
    errors.InvalidArgument: Another user can write it.
  """
  try:
    files.check_private(path)
    for entry in os.scandir(path) if deep else ():
      files.check_private(entry.path)
  except OSError as e:
    raise errors.InvalidArgument(
      f'the compiled programs in {path} are not used: {e}'
    ) from e


def _differences(
  opened: program_set.ProgramSet,
  here: manifest_lib.Configuration,
  keys: Collection[str],
) -> list[str]:
  manifest = opened.manifest
  missing = [key for key in keys if manifest.program(key) is None]
  problems = manifest_lib.differences(manifest.configuration, here)
  if missing and not problems:
    problems.append(f'the set lacks the programs {", ".join(missing)}')
  return problems


def _only_versions_differ(
  opened: program_set.ProgramSet,
  here: manifest_lib.Configuration,
  keys: Collection[str],
) -> bool:
  manifest = opened.manifest
  programs = [manifest.program(key) for key in keys]
  return manifest_lib.only_versions_differ(
    manifest.configuration, here
  ) and all(
    p is not None and manifest_lib.STABLEHLO in p.files for p in programs
  )


def _joined(differences: Sequence[str]) -> str:
  shown = '; '.join(differences[:_MOST])
  more = len(differences) - _MOST
  return f'{shown}; and {more} more' if more > 0 else shown
