"""A directory of compiled programs, written once and read by servers.

    manifest.json             what it holds and what it was compiled for
    decode_32.executable      what the device runs, and its like
    decode_32.stablehlo       the same before it was compiled

Nothing of it is executed as it is read, apart from the programs themselves: no
pickles. Every file is checked against the manifest's hash before it is used.
The manifest is not signed: who may write a set may run programs on its server.
"""

from collections.abc import Callable, Mapping
import dataclasses
import hashlib
import os
import pathlib
import tempfile

import jax

from saxml_ext.aot import manifest as manifest_lib
from saxml_ext.aot import serialization
from saxml_ext.common import errors
from saxml_ext.common import files
from saxml_ext.common import storage
from saxml_ext.engine import executables


@dataclasses.dataclass(frozen=True)
class ProgramSet:
  """A set that was opened; its programs are read when they are loaded.

  Attributes:
    path: The directory.
    manifest: The manifest of the set.
  """

  path: str
  manifest: manifest_lib.Manifest

  @classmethod
  def open(cls, path: str) -> 'ProgramSet':
    """Reads the manifest of the set at `path`, a directory or a URL.

    Raises:
      errors.InvalidArgument: There is none, or it is damaged or of another
        version.
    """
    place = f'{path.rstrip("/")}/{manifest_lib.NAME}'
    try:
      return cls(path, manifest_lib.loads(storage.read_bytes(place)))
    except errors.NotFound as e:
      raise errors.InvalidArgument(
        f'{path} is no program set: it has no {manifest_lib.NAME}; give the'
        ' directory that a program_set target of Bazel made'
      ) from e
    except ValueError as e:
      raise errors.InvalidArgument(
        f'{place} cannot be used as the manifest of a program set: {e}'
      ) from e

  def load(
    self, key: executables.Key, signature: executables.Signature
  ) -> jax.stages.Compiled | None:
    """Returns a program that can be called; None if the set does not have it.

    Args:
      key: The key of the program.
      signature: The program's signature; the set's configuration must be that
        of the engine that it comes from, see `manifest.differences`.

    Raises:
      errors.FailedPrecondition: Its file is damaged, or the device's runtime
        refuses it.
    """
    program = self.manifest.program(str(key))
    if program is None:
      return None
    content = self.read(program, manifest_lib.EXECUTABLE)
    serialized = serialization.Serialized(content, program.dropped)
    try:
      return serialization.load(serialized, signature, program.key)
    except jax.errors.JaxRuntimeError as e:
      raise errors.FailedPrecondition(
        f'the runtime does not take {program.key!r} of {self.path}: {e}'
      ) from e

  def compile(
    self, key: executables.Key, signature: executables.Signature
  ) -> Callable | None:
    """Returns the same, compiled here from the set's StableHLO.

    Raises:
      errors.FailedPrecondition: Its file is missing or damaged.
    """
    program = self.manifest.program(str(key))
    if program is None:
      return None
    return serialization.compile_exported(
      self.read(program, manifest_lib.STABLEHLO), signature
    )

  def read(self, program: manifest_lib.Program, kind: str) -> bytes:
    """Reads a file of a program.

    Args:
      program: A program of the manifest.
      kind: The kind of the file, such as `manifest.STABLEHLO`.

    Raises:
      errors.FailedPrecondition: There is none, or it does not match the
        manifest.
    """
    file = program.files.get(kind)
    if file is None:
      raise errors.FailedPrecondition(
        f'{self.path} has no {kind} of {program.key!r}, only'
        f' {", ".join(sorted(program.files))}: build the set with it'
      )
    place = f'{self.path.rstrip("/")}/{file.path}'
    try:
      content = storage.read_bytes(place)
    except errors.NotFound as e:
      raise errors.FailedPrecondition(
        f'{place} is missing, which {manifest_lib.NAME} names: copy the whole'
        ' set, or build it again'
      ) from e
    found = file_of(file.path, content)
    if found != file:
      raise errors.FailedPrecondition(
        f'{place} is damaged: its SHA-256 is {found.sha256} ({found.bytes}'
        f' bytes), and {manifest_lib.NAME} says {file.sha256} ({file.bytes}'
        ' bytes); copy or build the set again'
      )
    return content


def file_of(path: str, content: bytes) -> manifest_lib.File:
  """Returns a file of a set as a manifest names it."""
  digest = hashlib.sha256(content).hexdigest()
  return manifest_lib.File(path, digest, len(content))


def check_place(path: str) -> None:
  """Raises OSError unless a set can be written to `path`; see `write`."""
  path = os.path.abspath(path)
  if os.path.isdir(path) and os.listdir(path):
    raise OSError(f'{path} holds something: name a new or empty directory')
  with tempfile.TemporaryDirectory(dir=os.path.dirname(path)):
    pass  # Its parent is there, and may be written to.


def write(
  path: str, manifest: manifest_lib.Manifest, contents: Mapping[str, bytes]
) -> None:
  """Writes a set, whole or not at all.

  Args:
    path: The directory, which is empty or does not exist; its parent does.
    manifest: The manifest of the set.
    contents: The contents of all files that the manifest names, by path below
      the directory.

  Raises:
    OSError: It cannot be written, or the directory holds something.
  """
  check_place(path)
  text = manifest_lib.dumps(manifest).encode()
  with files.new_directory(path) as unfinished:
    for name, content in {**contents, manifest_lib.NAME: text}.items():
      pathlib.Path(unfinished, name).write_bytes(content)
