"""Tests malicious load requests to a model server over gRPC.

The requests have paths that lead out of the roots, and malicious checkpoints.
All of them are rejected with a reason. None of their code runs, and no file
outside of the roots is opened. Afterwards, the server still loads valid models.
"""

from collections.abc import Iterator
import contextlib
import json
import os
import pickle
import shutil
import sys
import time

from absl.testing import absltest
from absl.testing import parameterized
import grpc

from saxml_ext.common.security import roots
from saxml_ext.protobuf import modelet_pb2
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.loading import loader
from saxml_ext.server.testing import server_fixture
from saxml_ext.server.testing import small_model

_TIMEOUT = 300
# A rejection takes milliseconds of CPU time. The limit detects loads that take
# minutes or never end.
_CPU_SECONDS = 30
_REFUSALS = (
  grpc.StatusCode.INVALID_ARGUMENT,
  grpc.StatusCode.PERMISSION_DENIED,
)
_QUICK = {'BATCH_SIZE': '1', 'MAX_DECODE_STEPS': '2', 'BEAM_SIZE': '1'}

# The paths, in which {root}, {outside} and {model} are replaced.
_PATHS = (
  '{outside}',
  '{outside}/checkpoint_00000000',
  '{root}/../outside',
  '{root}/link',
  '{root}/link/checkpoint_00000000',
  '{root}/model/../../outside',
  '{root}x',
  '/',
  '/etc',
  '/proc/self/root',
  '/proc/self/cwd',
  '/dev/fd/0',
  '//etc',
  '..',
  '../..',
  '~',
  '~root',
  '%2e%2e',
  '{root}/%2e%2e/outside',
  '{model}\0',
  '\0',
  '{root}/..\\outside',
  'C:\\x',
  '\\\\host\\share',
  'file://{outside}',
  'http://127.0.0.1:1/x',
  'gs://bucket/x',
  's3://bucket/../x',
  '$(id)',
  '`id`',
  '${{HOME}}',
  '{root}/../' + '../' * 1365 + 'etc',
  '/' + 'A' * 4096,
  '{root}/．．/outside',
  '{root}/\u202eledom',
  '{root}/a\nb',
)


class _Opened:
  """A recorder of the paths that this process opens, until it is turned off.

  The audit hook itself cannot be removed.
  """

  def __init__(self):
    self.paths: list[str] = []
    self._on = False
    sys.addaudithook(self._hook)

  def _hook(self, event: str, args: tuple) -> None:
    if self._on and event in ('open', 'os.listdir', 'os.scandir'):
      if isinstance(args[0], (str, bytes, os.PathLike)):
        self.paths.append(os.fsdecode(args[0]))

  @contextlib.contextmanager
  def watching(self) -> Iterator[None]:
    self.paths.clear()
    self._on = True
    try:
      yield
    finally:
      self._on = False

  def below(self, directory: str) -> list[str]:
    return [p for p in self.paths if os.path.realpath(p).startswith(directory)]


_opened = _Opened()


class _Code:
  """An object that creates the canary file when pickle loads it."""

  def __init__(self, canary: str):
    self._canary = canary

  def __reduce__(self):
    return os.mkdir, (self._canary,)


class HostileLoadsTest(parameterized.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.server = server_fixture.ServerFixture(loader.load)
    cls.addClassCleanup(cls.server.stop)

  def setUp(self):
    super().setUp()
    top = os.path.realpath(self.create_tempdir().full_path)
    self.root, self.outside = f'{top}/root', f'{top}/outside'
    self.model = small_model.write(f'{self.root}/model')
    self.canary = f'{top}/canary'
    roots.configure([self.root])
    self.addCleanup(roots.configure, ())

  def load(self, path: str, **overrides: str) -> None:
    self.server.load(
      '/sax/test/m',
      model_path=small_model.MODEL_PATH,
      checkpoint_path=path,
      overrides=_QUICK | overrides,
    )

  def refused(self, path: str, **overrides: str) -> str:
    begin = time.process_time()
    try:
      self.load(path, **overrides)
    except grpc.RpcError as e:
      error = e
    else:
      self.unload()
      self.fail(f'{path[:200]!r} was loaded')
    self.assertIn(error.code(), _REFUSALS, error)
    self.assertLess(time.process_time() - begin, _CPU_SECONDS)
    self.assertFalse(os.path.exists(self.canary))
    return error.details()

  def unload(self) -> None:
    self.server.modelet.Unload(
      modelet_pb2.UnloadRequest(model_key='/sax/test/m'), timeout=_TIMEOUT
    )

  def test_paths_out_of_a_root_are_refused(self):
    small_model.write(self.outside)
    os.symlink(self.outside, f'{self.root}/link')
    words = {'root': self.root, 'outside': self.outside, 'model': self.model}
    with _opened.watching():
      for i, path in enumerate(_PATHS):
        with self.subTest(path[:60]):
          path = path.format(**words)
          self.refused(path)
          if '\0' not in path and i % 4 == 0:
            vocabulary = json.dumps(path)
            self.refused(
              self.model, TOKENIZED_INPUT='false', VOCABULARY_PATH=vocabulary
            )
    self.assertEqual(_opened.below(self.outside), [])
    self.assertEqual(_opened.below('/etc'), [])
    self.assertNotEmpty(_opened.below(self.model))  # The recorder works.

  def test_links_within_a_checkpoint(self):
    small_model.write(self.outside)
    step = f'{self.model}/checkpoint_00000000'
    shutil.rmtree(step)
    os.symlink(f'{self.outside}/checkpoint_00000000', step)
    self.assertIn('outside of the directories', self.refused(self.model))

  def test_siblings_of_a_root_are_not_read(self):
    step = f'{self.model}/checkpoint_00000000'
    roots.configure([step])
    with _opened.watching():
      # The file above defines EOS_ID and ROTARY_DIM.
      self.assertIn('EOS_ID', self.refused(step))
    self.assertEqual(_opened.below(f'{self.model}/gptj_config.json'), [])

  @parameterized.named_parameters(
    ('deep', 'gptj_config.json', b'[' * 200_000),
    ('no_text', 'gptj_config.json', b'\xff\xfe'),
    (
      'endless',
      'gptj_config.json',
      b'{"rotary_dim": 1e400, "eos_token_id": 49}',
    ),
    (
      'large',
      'gptj_config.json',
      b'{"rotary_dim": 99999999, "eos_token_id": 49}',
    ),
    ('negative', 'gptj_config.json', b'{"rotary_dim": -8, "eos_token_id": 49}'),
    (
      'no_number',
      'gptj_config.json',
      b'{"rotary_dim": 8, "eos_token_id": 49, "layer_norm_epsilon": NaN}',
    ),
    (
      'deep_metadata',
      'checkpoint_00000000/metadata/metadata',
      b'{"a":' * 100_000,
    ),
    ('no_metadata', 'checkpoint_00000000/metadata/metadata', b'\x80\x04.'),
  )
  def test_hostile_files_are_refused(self, name: str, data: bytes):
    path = f'{self.model}/{name}'
    self.assertTrue(os.path.exists(path))
    with open(path, 'wb') as f:
      f.write(data)
    self.refused(self.model)

  def test_code_in_place_of_every_file(self):
    code = pickle.dumps(_Code(self.canary))
    for parent, _, names in os.walk(self.model):
      if parent.endswith('/step') or 'x_layers_1' in parent:
        continue  # The file is not read, or is treated like the first layer.
      for name in names:
        path = os.path.join(parent, name)
        if name == 'commit_success.txt':
          continue  # Only the existence of the file is checked.
        with open(path, 'rb') as f:
          data = f.read()
        with open(path, 'wb') as f:
          f.write(code)
        with self.subTest(os.path.relpath(path, self.model)):
          self.refused(self.model)
        with open(path, 'wb') as f:
          f.write(data)

  def test_mislabeled_arrays_are_refused(self):
    path = next(
      os.path.join(parent, '.zarray')
      for parent, _, names in os.walk(self.model)
      if '.zarray' in names and not parent.endswith('/step')
    )
    with open(path, encoding='ascii') as f:
      array = json.load(f)
    for key, value in (
      ('shape', [2**40 for _ in array['shape']]),
      ('chunks', [2**40 for _ in array['chunks']]),
      ('compressor', {'id': 'pickle'}),
      ('filters', [{'id': 'pickle'}]),
      ('dtype', '|O'),
    ):
      with open(path, 'w', encoding='ascii') as f:
        json.dump(array | {key: value}, f)
      with self.subTest(key):
        self.refused(self.model)

  def test_code_in_place_of_a_tokenizer(self):
    for name in ('tokenizer.json', 'tokenizer.model'):
      path = f'{self.root}/{name}'
      with open(path, 'wb') as f:
        f.write(pickle.dumps(_Code(self.canary)))
      self.refused(
        self.model,
        TOKENIZED_INPUT='false',
        VOCABULARY_PATH=json.dumps(path),
      )

  def test_files_inside_a_root_are_read(self):
    plan = loader.plan(
      entry_lib.Spec(small_model.MODEL_PATH, self.model, {}, {})
    )
    self.assertEqual(plan.settings.engine.eos_id, small_model.EOS_ID)


if __name__ == '__main__':
  absltest.main()
