"""Tests of `server --programs`: a process compiles nothing, or refuses."""

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

from absl.testing import absltest
import grpc

from saxml_ext.aot import compile_set
from saxml_ext.common.testing import modules
from saxml_ext.protobuf import lm_pb2
from saxml_ext.protobuf import lm_pb2_grpc
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.loading import loader
from saxml_ext.server.testing import small_model

_KEY = '/sax/test/small'
_TIMEOUT = 600


class ServerProgramsTest(absltest.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    directory = tempfile.mkdtemp(dir=absltest.TEST_TMPDIR.value)
    cls.checkpoint = small_model.write(os.path.join(directory, 'checkpoint'))
    cls.path = os.path.join(directory, 'set')
    made = loader.plan(
      entry_lib.Spec(small_model.MODEL_PATH, cls.checkpoint, {}, acls={})
    )
    run = made.executables()
    compile_set.compile_set(
      cls.path, run, run.keys(), made.serving, stablehlo=False
    )

  def _start(self, *flags: str) -> subprocess.Popen:
    """Starts a server whose only model is the small one."""
    return modules.start(
      self,
      'saxml_ext.server.testing.small_server',
      '--port=0',
      '--sax_cell=',
      f'--models={small_model.MODEL_PATH}',
      f'--model_keys={_KEY}',
      f'--checkpoints={self.checkpoint}',
      *flags,
    )

  def _refused(self, path: str) -> str:
    """Returns the error output of a server that ends with 1."""
    process = self._start(f'--programs={path}')
    _, stderr = process.communicate(timeout=_TIMEOUT)
    self.assertEqual(process.returncode, 1, stderr)
    self.assertNotIn('Traceback', stderr)
    self.assertNotIn('compiled 1 of', stderr)
    return stderr

  def _copy(self) -> pathlib.Path:
    copy = pathlib.Path(self.create_tempdir().full_path, 'set')
    shutil.copytree(self.path, copy)
    return copy

  def test_server_with_programs_compiles_nothing(self):
    process = self._start(f'--programs={self.path}')
    line = process.stdout.readline()
    address = line.strip().rpartition(' ')[2]
    with grpc.insecure_channel(address) as channel:
      answer = lm_pb2_grpc.LMServiceStub(channel).Generate(
        lm_pb2.GenerateRequest(model_key=_KEY, text='1,2,3'), timeout=_TIMEOUT
      )
    self.assertNotEmpty(answer.texts)
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=_TIMEOUT)
    self.assertEqual(process.returncode, 0)
    self.assertIn(f'uses the programs of {self.path}', stderr)
    self.assertRegex(stderr, r'programs are ready: \d+ loaded, 0 compiled')
    self.assertRegex(stderr, r'loaded \S+ in .* s, 0 programs compiled')

  def test_a_damaged_program_is_refused(self):
    copy = self._copy()
    file = copy / 'score.executable'
    file.write_bytes(file.read_bytes()[:-1])
    self.assertRegex(
      self._refused(str(copy)), f'server: {file} is damaged: its SHA-256 is'
    )

  def test_a_set_of_another_machine_is_refused_with_the_difference(self):
    copy = self._copy()
    manifest = copy / 'manifest.json'
    text = manifest.read_text()
    changed = text.replace('"kind": "', '"kind": "not ')
    self.assertNotEqual(changed, text)
    manifest.write_text(changed)
    self.assertRegex(
      self._refused(str(copy)),
      'server: the programs for .* cannot be used and nothing was compiled:'
      f' {copy} does not match: target.kind: the set has "not ',
    )

  def test_directory_without_a_set_is_refused(self):
    empty = self.create_tempdir().full_path
    self.assertIn(f'server: {empty} is not a program set', self._refused(empty))


if __name__ == '__main__':
  absltest.main()
