"""Combines layers into an image, as one archive that every tool can read.

It is an OCI image layout (opencontainers/image-spec, image-layout.md) with an
additional file manifest.json, which `docker load` of any version reads. `podman
load`, `ctr images import` and `skopeo copy oci-archive:...` accept the archive
too.
"""

from collections.abc import Sequence
import hashlib
import json
import pathlib
import platform
import tarfile
from typing import Any

from absl import flags

from deploy.images import layer
from saxml_ext.common import program

_ARCHIVE = flags.DEFINE_string('archive', None, 'The archive to write, .tar.')
_LAYER = flags.DEFINE_multi_string('layer', [], 'A layer, the lowest first.')
_NAME = flags.DEFINE_string('name', None, 'The name of the loaded image.')
_ENTRYPOINT = flags.DEFINE_multi_string(
  'entrypoint', [], 'A word of the entry point.'
)
_VARIABLE = flags.DEFINE_multi_string(
  'variable', [], 'An environment variable, as NAME=VALUE.'
)
_USER = flags.DEFINE_string('user', '0', 'The user that runs the program.')
_PORT = flags.DEFINE_multi_integer('port', [], 'A port of the program.')
_TITLE = flags.DEFINE_string('title', '', 'The title of the image.')
_STATUS = flags.DEFINE_string(
  'status', None, "Bazel's file with the commit of the sources."
)

_CONFIG = 'application/vnd.oci.image.config.v1+json'
_GZIP = 'application/vnd.oci.image.layer.v1.tar+gzip'
_INDEX = 'application/vnd.oci.image.index.v1+json'
_MANIFEST = 'application/vnd.oci.image.manifest.v1+json'
# A fixed time makes all builds of an image identical.
_TIME = '1970-01-01T00:00:00Z'
_ARCHITECTURES = {'x86_64': 'amd64', 'aarch64': 'arm64'}


def _json(value: Any) -> bytes:
  return json.dumps(value, sort_keys=True, separators=(',', ':')).encode()


def _digest(data: bytes) -> str:
  return f'sha256:{hashlib.sha256(data).hexdigest()}'


def _blob(digest: str) -> str:
  return f'blobs/{digest.replace(":", "/")}'


def revision(status: str) -> str:
  """Returns the commit in the text of Bazel's stable status, or ''.

  The suffix "-dirty" means that the checkout had changes.
  """
  for line in status.splitlines():
    key, _, value = line.partition(' ')
    if key == 'STABLE_REVISION':
      return value
  return ''


def config(diff_ids: Sequence[str], commit: str) -> dict[str, Any]:
  """Returns the image's configuration (image-spec, config.md).

  Args:
    diff_ids: The digests of the uncompressed layers, the lowest first.
    commit: The commit of the sources; '' if it is unknown.
  """
  machine = platform.machine()
  labels = {
    'org.opencontainers.image.title': _NAME.value,
    'org.opencontainers.image.description': _TITLE.value,
    'org.opencontainers.image.licenses': 'Apache-2.0',
    'org.opencontainers.image.version': program.VERSION,
  }
  variables = ['PATH=/usr/local/bin:/usr/bin:/bin', *_VARIABLE.value]
  if commit:
    labels['org.opencontainers.image.revision'] = commit
    # For --version of the programs.
    variables.append(f'{program.COMMIT_VARIABLE}={commit}')
  return {
    'created': _TIME,
    'architecture': _ARCHITECTURES.get(machine, machine),
    'os': 'linux',
    'config': {
      'Env': variables,
      'Entrypoint': list(_ENTRYPOINT.value),
      'ExposedPorts': {f'{port}/tcp': {} for port in _PORT.value},
      'User': _USER.value,
      'WorkingDir': '/',
      'StopSignal': 'SIGTERM',
      'Labels': labels,
    },
    'rootfs': {'type': 'layers', 'diff_ids': list(diff_ids)},
    'history': [{'created': _TIME, 'created_by': 'bazel'} for _ in diff_ids],
  }


def main(argv: Sequence[str]) -> None:
  del argv
  paths = list(map(pathlib.Path, _LAYER.value))
  digests = list(map(layer.digests, paths))
  status = pathlib.Path(_STATUS.value).read_text(encoding='utf-8')
  described = _json(config([d.diff_id for d in digests], revision(status)))
  manifest = _json(
    {
      'schemaVersion': 2,
      'mediaType': _MANIFEST,
      'config': {
        'mediaType': _CONFIG,
        'digest': _digest(described),
        'size': len(described),
      },
      'layers': [
        {'mediaType': _GZIP, 'digest': d.blob, 'size': path.stat().st_size}
        for path, d in zip(paths, digests)
      ],
    }
  )
  # It names one image, because skopeo takes an archive with several only if one
  # is chosen. The version is a second tag for `docker load` alone.
  index = {
    'schemaVersion': 2,
    'mediaType': _INDEX,
    'manifests': [
      {
        'mediaType': _MANIFEST,
        'digest': _digest(manifest),
        'size': len(manifest),
        'annotations': {
          'org.opencontainers.image.ref.name': 'latest',
          'io.containerd.image.name': f'docker.io/library/{_NAME.value}:latest',
        },
      }
    ],
  }
  for_docker = [
    {
      'Config': _blob(_digest(described)),
      'RepoTags': [
        f'{_NAME.value}:{tag}' for tag in ('latest', program.VERSION)
      ],
      'Layers': [_blob(d.blob) for d in digests],
    }
  ]
  entries: dict[str, layer.Entry] = {
    _blob(d.blob): layer.File(path) for path, d in zip(paths, digests)
  }
  for data in (described, manifest):
    entries[_blob(_digest(data))] = layer.File(data)
  entries['oci-layout'] = layer.File(_json({'imageLayoutVersion': '1.0.0'}))
  entries['index.json'] = layer.File(_json(index))
  entries['manifest.json'] = layer.File(_json(for_docker))
  with tarfile.open(_ARCHIVE.value, 'w', format=tarfile.GNU_FORMAT) as tar:
    layer.add_all(tar, entries)


if __name__ == '__main__':
  flags.mark_flags_as_required(['archive', 'name', 'status'])
  program.run(main)
