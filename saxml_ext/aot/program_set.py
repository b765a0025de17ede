"""A directory of compiled programs, written once and read by servers.

    manifest.json             what it holds and what it was compiled for
    decode_32.executable      what the device runs, and its like
    decode_32.stablehlo       the same before it was compiled

Nothing of it is executed as it is read, apart from the programs themselves: no
pickles. Every file is checked against the manifest's hash before it is used.
The manifest is not signed: who may write a set may run programs on its server.
"""

from collections.abc import Mapping
import hashlib
import os
import tempfile

import jax

from saxml_ext.aot import exporting
from saxml_ext.aot import manifest as manifest_lib
from saxml_ext.aot import serialization
from saxml_ext.common import errors
from saxml_ext.common import files as files_lib
from saxml_ext.common import storage
from saxml_ext.engine import executables


class ProgramSet:
  """A set that was opened; its programs are read when they are loaded."""

  def __init__(self, path: str, manifest: manifest_lib.Manifest):
    """Use `open`.

    Args:
      path: the directory.
      manifest: what it holds.
    """
    self.path = path
    self.manifest = manifest

  @classmethod
  def open(cls, path: str) -> 'ProgramSet':
    """Reads the manifest of the set at `path`, a directory or a URL.

    Raises:
      errors.InvalidArgument: there is none, or it is damaged or of another
        version.
    """
    place = f'{path.rstrip("/")}/{manifest_lib.NAME}'
    try:
      manifest = manifest_lib.loads(storage.read_bytes(place))
    except errors.NotFound as e:
      raise errors.InvalidArgument(
        f'{path} is no program set: it has no {manifest_lib.NAME}; give the'
        ' directory that a program_set target of Bazel made'
      ) from e
    except ValueError as e:
      raise errors.InvalidArgument(
        f'{place} cannot be used as the manifest of a program set: {e}'
      ) from e
    return cls(path, manifest)

  def load(
    self, key: executables.Key, signature: executables.Signature
  ) -> jax.stages.Compiled | None:
    """A program that can be called; None: the set has none of that key.

    Args:
      key: which one.
      signature: how it is called; the set's configuration must be that of the
        engine that it comes from, see `manifest.differences`.

    Raises:
      errors.FailedPrecondition: its file is damaged, or the device's runtime
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
  ) -> exporting.Flat | None:
    """The same, compiled here from the set's StableHLO.

    Raises:
      errors.FailedPrecondition: its file is missing or damaged.
    """
    program = self.manifest.program(str(key))
    if program is None:
      return None
    return exporting.compile_exported(
      self.read(program, manifest_lib.STABLEHLO), signature
    )

  def read(self, program: manifest_lib.Program, kind: str) -> bytes:
    """A file of a program.

    Args:
      program: of the manifest.
      kind: of the file, such as `manifest.STABLEHLO`.

    Raises:
      errors.FailedPrecondition: there is none, or it is not what the manifest
        says.
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
    found = hashlib.sha256(content).hexdigest()
    if found != file.sha256:
      raise errors.FailedPrecondition(
        f'{place} is damaged: its SHA-256 is {found} ({len(content)} bytes), and'
        f' {manifest_lib.NAME} says {file.sha256} ({file.bytes} bytes); copy or'
        ' build the set again'
      )
    return content


def file_of(path: str, content: bytes) -> manifest_lib.File:
  """How a manifest names a file of a set."""
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
  path: str, manifest: manifest_lib.Manifest, files: Mapping[str, bytes]
) -> None:
  """Writes a set, whole or not at all.

  Args:
    path: a directory that is empty or does not exist; its parent does.
    manifest: of the set.
    files: content by path below the directory, all that the manifest names.

  Raises:
    OSError: it cannot be written, or the directory holds something.
  """
  check_place(path)
  with files_lib.new_directory(path) as unfinished:
    text = manifest_lib.dumps(manifest).encode()
    for each, content in {**files, manifest_lib.NAME: text}.items():
      with open(os.path.join(unfinished, each), 'wb') as file:
        file.write(content)
