"""Runs the images without a container daemon: unpacked, in namespaces.

The tests check the metadata of the images against the rules of the
specifications. They also run the documented commands (docker run --env
SAX_ROOT=... IMAGE ...).
"""

import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import tarfile
import tempfile
import time
from typing import Any
import urllib.error
import urllib.request

from absl.testing import absltest

from saxml_ext.common import net
from saxml_ext.common import program
from tests.hosts import namespaces

_IMAGES = ('sax_admin_server', 'sax_gateway', 'sax_model_server', 'sax_util')
_MODEL = (
  'saxml.server.pax.lm.params.lm_cloud.LmCloudSpmd175B32Test',
  'None',
  '1',
  'NUM_LAYERS=2',
  'MODEL_DIMS=64',
  'NUM_HEADS=4',
  'DIMS_PER_HEAD=16',
  'HIDDEN_DIMS=128',
  'BATCH_SIZE=1',
  'ICI_MESH_SHAPE=[1,1,1]',
)
# The command mounts a container's file systems, and then runs its program.
_INSIDE = (
  'mount --rbind /dev "$0/dev" && mount --rbind /proc "$0/proc"'
  ' && mount --bind "$1" "$0/home/nonroot" && root=$0 && shift'
  ' && exec /usr/sbin/chroot "$root" "$@"'
)
_SHARED = '/home/nonroot'
# The reason why this machine cannot mount file systems; '' if it can.
_obstacle = ''


class Image:
  """An image as its archive describes it.

  Attributes:
    archive: The archive for `docker load`.
    config: The configuration of its program.
    layers: The descriptors of the layers, the lowest first.
  """

  def __init__(self, target: str):
    path = pathlib.Path(__file__).with_name(f'{target}.tar')
    self.archive = tarfile.open(path)
    index = self.json('index.json')
    (described,) = index['manifests']
    manifest = json.loads(self.blob(described))
    self.layers = manifest['layers']
    whole = json.loads(self.blob(manifest['config']))
    self.diff_ids = whole['rootfs']['diff_ids']
    self.config = whole['config']

  def json(self, name: str) -> Any:
    return json.loads(self.read(name))

  def read(self, name: str) -> bytes:
    file = self.archive.extractfile(name)
    assert file is not None, name
    return file.read()

  def blob(self, descriptor: dict[str, Any]) -> bytes:
    """Returns a blob after checking its length and its digest."""
    data = self.read(f'blobs/{descriptor["digest"].replace(":", "/")}')
    assert len(data) == descriptor['size'], descriptor
    digest = f'sha256:{hashlib.sha256(data).hexdigest()}'
    assert digest == descriptor['digest'], (digest, descriptor)
    return data

  def unpack(self, root: str) -> None:
    for descriptor in self.layers:
      name = f'blobs/{descriptor["digest"].replace(":", "/")}'
      with tarfile.open(fileobj=self.archive.extractfile(name)) as layer:
        layer.extractall(root, filter='tar')


class ImagesTest(absltest.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.images = {name: Image(name) for name in _IMAGES}

  def test_layers_have_the_digests_of_the_image(self):
    for name, image in self.images.items():
      with self.subTest(name):
        self.assertEqual(
          image.json('oci-layout')['imageLayoutVersion'], '1.0.0'
        )
        digests = []
        for descriptor in image.layers:
          with tempfile.TemporaryFile() as f:
            f.write(image.blob(descriptor))
            f.seek(0)
            with tarfile.open(fileobj=f, mode='r:gz') as layer:
              members = layer.getmembers()
              self.assertEqual({m.mtime for m in members}, {0})
              self.assertEqual({m.uid for m in members}, {0})
              names = [m.name for m in members]
              self.assertLen(set(names), len(names))
          digests.append(descriptor['digest'])
        self.assertLen(image.diff_ids, len(digests))
        (for_docker,) = image.json('manifest.json')
        self.assertEqual(
          [path.rpartition('/')[2] for path in for_docker['Layers']],
          [digest.rpartition(':')[2] for digest in digests],
        )

  def test_images_share_the_lowest_layer(self):
    lowest = {i.layers[0]['digest'] for i in self.images.values()}
    self.assertLen(lowest, 1)

  def test_version_and_commit_are_named(self):
    for name, image in self.images.items():
      with self.subTest(name):
        labels = image.config['Labels']
        version = labels['org.opencontainers.image.version']
        self.assertEqual(version, program.VERSION)
        (for_docker,) = image.json('manifest.json')
        target = name.replace('_', '-')
        self.assertEqual(
          for_docker['RepoTags'], [f'{target}:latest', f'{target}:{version}']
        )
        # Without git, the commit is unknown.
        revision = labels.get('org.opencontainers.image.revision', 40 * '0')
        self.assertRegex(revision, '^[0-9a-f]{40}(-dirty)?$')

  def test_only_the_model_server_is_root(self):
    users = {name: image.config['User'] for name, image in self.images.items()}
    self.assertEqual(users.pop('sax_model_server'), '0')
    self.assertEqual(set(users.values()), {'65532'})

  def test_cell_of_containers(self):
    if _obstacle:
      self.skipTest(_obstacle)
    with _Containers(self.images) as cell:
      cell.start(
        'sax_admin_server',
        '--http_port=-1',
        PORT=str(net.pick_free_port()),
        FS_ROOT=f'{_SHARED}/fs',
      )
      cell.wait_for('root/sax/test/location.proto')
      cell.start(
        'sax_model_server',
        '--sax_cell=/sax/test',
        f'--port={net.pick_free_port()}',
        '--platform_chip=cpu',
        '--platform_topology=1',
      )
      cell.run('sax_util', 'publish', '/sax/test/lm', *_MODEL)
      cell.run('sax_util', 'wait', '/sax/test/lm', '1')
      output = cell.run('sax_util', 'lm.score', '/sax/test/lm', 'a b', 'c')
      self.assertIn('SCORE', output.upper())
      port = net.pick_free_port()
      cell.start('sax_gateway', '--sax_cell=/sax/test', f'--port={port}')
      self.assertIn('/sax/test/lm', _get(f'http://127.0.0.1:{port}/v1/models'))
      self.assertIn(_MODEL[0], cell.run('sax_util', 'ls', '/sax/test/lm'))


def _get(url: str) -> str:
  """Returns a server's response once the server listens."""
  for _ in range(600):
    try:
      with urllib.request.urlopen(url) as answer:
        return answer.read().decode()
    except urllib.error.URLError as e:
      if not isinstance(e.reason, ConnectionRefusedError):
        raise
      time.sleep(0.1)
  raise TimeoutError(url)


class _Containers:
  """Containers that share a directory while this context is open."""

  def __init__(self, images: dict[str, Image]):
    self._images = images

  def __enter__(self) -> '_Containers':
    self._directory = tempfile.mkdtemp(dir=absltest.TEST_TMPDIR.value)
    self._shared = os.path.join(self._directory, 'shared')
    os.mkdir(self._shared)
    for name, image in self._images.items():
      os.mkdir(os.path.join(self._directory, name))
      image.unpack(os.path.join(self._directory, name))
    self._running: list[subprocess.Popen] = []
    return self

  def __exit__(self, *exc_info) -> None:
    for process in self._running:
      process.terminate()
    codes = [process.wait(60) for process in self._running]
    shutil.rmtree(self._directory)
    if exc_info[0] is None:
      assert not any(codes), codes

  def start(self, name: str, *arguments: str, **variables: str) -> None:
    self._running.append(
      subprocess.Popen(**self._command(name, arguments, variables))
    )

  def run(self, name: str, *arguments: str) -> str:
    """Returns the output of a program, which must succeed."""
    done = subprocess.run(
      **self._command(name, arguments, {}),
      stdout=subprocess.PIPE,
      text=True,
      timeout=240,
    )
    assert not done.returncode, done
    return done.stdout

  def wait_for(self, name: str) -> None:
    """Waits until a file is in the shared directory."""
    path = os.path.join(self._shared, name)
    while not os.path.exists(path):
      (process,) = self._running
      try:
        process.wait(0.1)
      except subprocess.TimeoutExpired:
        continue
      raise AssertionError(f'ended with {process.returncode}')

  def _command(
    self, name: str, arguments: tuple[str, ...], variables: dict[str, str]
  ) -> dict[str, Any]:
    config = self._images[name].config
    env = dict(variable.split('=', 1) for variable in config['Env'])
    env |= {
      'SAX_ROOT': f'{_SHARED}/root',
      'SAX_DEBUG_IPADDR': '1',
      'XLA_FLAGS': os.environ.get('XLA_FLAGS', ''),
    }
    env |= variables
    root = os.path.join(self._directory, name)
    return {
      'args': [
        *('unshare', '--mount', 'sh', '-ec', _INSIDE, root, self._shared),
        *config['Entrypoint'],
        *arguments,
      ],
      'env': env,
    }


if __name__ == '__main__':
  _obstacle = namespaces.enter(['--mount'], 'mount --bind /tmp /tmp')
  absltest.main()
