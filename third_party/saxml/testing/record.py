"""Records the facts of an upstream commit that this repository is checked with.

  bazel run //third_party/saxml/testing:record -- --repository=DIR --commit=ID
  --release=mlperf4.0

writes ../records/RELEASE.tree, which lists the id of every file's contents, and
records/RELEASE.protocol, which lists the names and numbers of the protocol.
"""

from collections.abc import Sequence
import io
import os
import pathlib
import subprocess
import tarfile
import tempfile

from absl import flags
from google.protobuf import descriptor_pb2
from grpc_tools import protoc

from saxml_ext.common import program
from saxml_ext.common import user_path
from third_party.saxml.testing import descriptors

_REPOSITORY = flags.DEFINE_string(
  'repository', None, 'A git repository that has the commit.'
)
_COMMIT = flags.DEFINE_string(
  'commit', None, 'The commit, as 40 hexadecimal digits.'
)
_RELEASE = flags.DEFINE_string(
  'release', None, 'The name of the record to write.'
)
_FOLDER = 'saxml/protobuf'
# Clients and servers do not use these.
_PRIVATE = ('internal.proto', 'test.proto')


def protocol(root: pathlib.Path) -> list[str]:
  """Returns the facts of the public protocol of Saxml's sources in `root`.

  Raises:
    ValueError: The protocol compiler rejects a file.
  """
  names = sorted(
    str(path.relative_to(root))
    for path in (root / _FOLDER).glob('*.proto')
    if path.name not in _PRIVATE
  )
  with tempfile.TemporaryDirectory() as directory:
    out = pathlib.Path(directory, 'descriptors')
    if protoc.main(['', f'-I{root}', f'--descriptor_set_out={out}', *names]):
      raise ValueError(f'protoc cannot compile {", ".join(names)}.')
    files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file
  return descriptors.lines(files)


def main(argv: Sequence[str]) -> None:
  del argv
  repository, commit = user_path.resolve(_REPOSITORY.value), _COMMIT.value

  def git(*words: str) -> bytes:
    return subprocess.check_output(['git', '-C', repository, *words])

  # The runfiles link to the sources.
  here = pathlib.Path(os.path.realpath(__file__)).parent
  files = git('ls-tree', '-r', commit).decode()
  tree = here.parent / 'records' / f'{_RELEASE.value}.tree'
  tree.write_text(f'# {commit}\n{files}', encoding='utf-8')
  with tempfile.TemporaryDirectory() as root:
    with tarfile.open(fileobj=io.BytesIO(git('archive', commit))) as archive:
      archive.extractall(root, filter='data')
    facts = protocol(pathlib.Path(root))
  text = ''.join(f'{fact}\n' for fact in facts)
  record = here / descriptors.RECORDS.name / f'{_RELEASE.value}.protocol'
  record.write_text(text, encoding='utf-8')


if __name__ == '__main__':
  flags.mark_flags_as_required(['repository', 'commit', 'release'])
  program.run(main)
