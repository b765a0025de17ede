"""Reads and writes directories of compiled programs, which servers load.

    manifest.json             the content, and what it was compiled for
    decode_32.executable      the program for the device; one file per program
    decode_32.stablehlo       the program before it was compiled

Reading a set executes no code, because it contains no pickles. Only the
programs themselves run. Every file is compared with the manifest's hash before
it is used. The manifest is not signed, so anyone who can write a set can run
programs on its server.
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
  """An open set. Its programs are read when they are loaded.

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
      errors.InvalidArgument: The manifest is missing or damaged, or has another
        version.
    """
    manifest_path = f'{path.rstrip("/")}/{manifest_lib.NAME}'
    try:
      return cls(path, manifest_lib.loads(storage.read_bytes(manifest_path)))
    except errors.NotFound as e:
      raise errors.InvalidArgument(
        f'{path} is not a program set, because it has no {manifest_lib.NAME}.'
        ' Pass the output directory of a program_set target of Bazel.'
      ) from e
    except ValueError as e:
      raise errors.InvalidArgument(
        f'{manifest_path} cannot be used as the manifest of a program set: {e}'
      ) from e

  def load(
    self, key: executables.Key, signature: executables.Signature
  ) -> jax.stages.Compiled | None:
    """Returns a callable program, or None if the set does not have it.

    Args:
      key: The key of the program.
      signature: The program's signature. The set's configuration must match
        that of the signature's engine, see `manifest.differences`.

    Raises:
      errors.FailedPrecondition: The file is damaged, or the device's runtime
        rejects it.
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
        f'the runtime cannot load {program.key!r} of {self.path}: {e}'
      ) from e

  def compile(
    self, key: executables.Key, signature: executables.Signature
  ) -> Callable | None:
    """Compiles a program from the set's StableHLO.

    Args:
      key: The key of the program.
      signature: The program's signature.

    Returns:
      The callable program, or None if the set does not have it.

    Raises:
      errors.FailedPrecondition: The file is missing or damaged.
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
      program: The program in the manifest.
      kind: The kind of the file, such as `manifest.STABLEHLO`.

    Raises:
      errors.FailedPrecondition: The file is missing, or does not match the
        manifest.
    """
    file = program.files.get(kind)
    if file is None:
      raise errors.FailedPrecondition(
        f'{self.path} has no {kind} of {program.key!r}, only'
        f' {", ".join(sorted(program.files))}. Build the set with it.'
      )
    path = f'{self.path.rstrip("/")}/{file.path}'
    try:
      content = storage.read_bytes(path)
    except errors.NotFound as e:
      raise errors.FailedPrecondition(
        f'{path} is missing, but {manifest_lib.NAME} lists it. Copy the whole'
        ' set, or build it again.'
      ) from e
    actual = file_of(file.path, content)
    if actual != file:
      raise errors.FailedPrecondition(
        f'{path} is damaged: its SHA-256 is {actual.sha256} ({actual.bytes}'
        f' bytes), but {manifest_lib.NAME} has {file.sha256} ({file.bytes}'
        ' bytes). Copy or build the set again.'
      )
    return content


def file_of(path: str, content: bytes) -> manifest_lib.File:
  """Returns the manifest's entry for a file of a set."""
  digest = hashlib.sha256(content).hexdigest()
  return manifest_lib.File(path, digest, len(content))


def check_place(path: str) -> None:
  """Raises OSError if a set cannot be written to `path`; see `write`."""
  path = os.path.abspath(path)
  if os.path.isdir(path) and os.listdir(path):
    raise OSError(f'{path} is not empty. Choose a new or empty directory.')
  with tempfile.TemporaryDirectory(dir=os.path.dirname(path)):
    pass  # The parent exists and is writable.


def write(
  path: str, manifest: manifest_lib.Manifest, contents: Mapping[str, bytes]
) -> None:
  """Writes a set atomically.

  Args:
    path: The directory, which is empty or does not exist. Its parent exists.
    manifest: The manifest of the set.
    contents: The contents of all files in the manifest, by path below the
      directory.

  Raises:
    OSError: The set cannot be written, or the directory is not empty.
  """
  check_place(path)
  text = manifest_lib.dumps(manifest).encode()
  with files.new_directory(path) as unfinished:
    for name, content in {**contents, manifest_lib.NAME: text}.items():
      pathlib.Path(unfinished, name).write_bytes(content)
