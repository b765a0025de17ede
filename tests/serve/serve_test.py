"""Tests the bundled model as a user serves it, also with killed processes."""

import os
import signal
import subprocess
import time

from absl.testing import absltest
import psutil

from serve import programs

# Without other load, the start takes seconds. A busy machine may need a hundred
# times that.
_START_SECS = 600.0


def _wait_until(condition, what: str) -> None:
  deadline = time.monotonic() + _START_SECS
  while not condition():
    if time.monotonic() > deadline:
      raise AssertionError(f'{what} did not happen within {_START_SECS:g} s')
    time.sleep(0.1)


class ServeTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    # A test runner may ignore Ctrl-C, and children would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    self._cache = self.create_tempdir().full_path
    self._log = os.path.join(self._cache, 'log')

  def _command(self, program: str, *words: str, **flags):
    command = programs.command(program, flags, {'GPTJ_SAX_CACHE': self._cache})
    return (*command.argv, *words), dict(command.env)

  def _start(self, *words: str, **flags) -> str:
    """Starts `serve`; returns its port."""
    argv, env = self._command(programs.SERVE, *words, port=0, **flags)
    with open(self._log, 'wb') as log:
      self._serve = subprocess.Popen(argv, env=env, stdout=log, stderr=log)
    self.addCleanup(self._serve.wait)
    self.addCleanup(self._serve.send_signal, signal.SIGINT)
    _wait_until(
      lambda: 'Ready: ' in self._told or self._serve.poll() is not None, 'ready'
    )
    self.assertIsNone(self._serve.poll(), self._told)
    return self._told.rpartition(':')[2].strip()

  @property
  def _told(self) -> str:
    with open(self._log, encoding='utf-8') as file:
      return file.read()

  def _ask(self, port: str, *words: str, **flags):
    argv, env = self._command('serve/ask', *words, port=port, **flags)
    return subprocess.run(
      argv, env=env, capture_output=True, text=True, check=False
    )

  def _child(self, program: str) -> psutil.Process:
    for child in psutil.Process(self._serve.pid).children(recursive=True):
      if f'{program}.py' in ' '.join(child.cmdline()):
        return child
    raise AssertionError(f'{program} does not run: {self._told}')

  def test_serves_through_the_death_of_a_process_and_ends(self):
    port = self._start()
    done = self._ask(port, 'The court', 'said', max_tokens=8, temperature=0)
    self.assertEqual(done.returncode, 0, done.stderr)
    self.assertNotEmpty(done.stdout.strip())
    self.assertIn('lm.generate /sax/local/gptj-small', self._told)
    self.assertIn('curl -N http://127.0.0.1:', self._told)
    # The server that replaces the killed one gives the same answer.
    self._child(programs.MODEL_SERVER).kill()
    _wait_until(lambda: 'Starting it again' in self._told, 'a restart')
    again = self._ask(port, 'The court', 'said', max_tokens=8, temperature=0)
    self.assertEqual((again.returncode, again.stdout), (0, done.stdout))
    refused = self._ask(port, 'Hello', model='other')
    self.assertEqual(refused.returncode, 1)
    self.assertIn('other', refused.stderr)
    self._taken(port)
    processes = psutil.Process(self._serve.pid).children(recursive=True)
    self._serve.send_signal(signal.SIGINT)
    self.assertEqual(self._serve.wait(), 0, self._told)
    self.assertEmpty([p for p in processes if p.is_running()])
    self.assertIn('serve: stopped', self._told)

  def test_serves_a_llama_from_its_hugging_face_directory(self):
    directory = os.path.join(
      programs.ROOT, 'harness', 'bundled', 'llama', 'model'
    )
    port = self._start(directory, 'BATCH_SIZE=1', max_model_len=64)
    self.assertIn('saxml_ext.params.llama.AnyLlama', self._told)
    done = self._ask(port, 'The court', 'said', max_tokens=8, temperature=0)
    self.assertEqual(done.returncode, 0, done.stderr)
    self.assertNotEmpty(done.stdout.strip())

  def _taken(self, port: str) -> None:
    """Checks the errors of a second `serve` with the same port or directory."""
    argv, env = self._command(programs.SERVE, port=port)
    done = subprocess.run(
      argv, env=env, capture_output=True, text=True, check=False
    )
    self.assertEqual(done.returncode, 1)
    self.assertRegex(done.stderr, 'Address already in use, by process [0-9]+')
    root = os.path.join(self._cache, 'serve', port)
    argv, env = self._command(programs.SERVE, port=0, sax_root=root)
    done = subprocess.run(
      argv, env=env, capture_output=True, text=True, check=False
    )
    self.assertEqual(done.returncode, 1)
    self.assertIn(f'is used by process {self._serve.pid}', done.stderr)

  def test_flags_without_effect_are_refused(self):
    for flags, message in (
      ({'host': '0.0.0.0'}, '--api_key_file, or --insecure'),
      ({'insecure': True}, '--insecure has no effect'),
      ({'api_key_file': '/nowhere'}, 'does not exist'),
      (
        {'params': 'a.B', 'quantize': 'int8'},
        'no effect. It acts only without --params',
      ),
      (
        {'params': 'a.B', 'max_model_len': 64},
        'no effect. It acts only without --params',
      ),
    ):
      argv, env = self._command(programs.SERVE, port=0, **flags)
      done = subprocess.run(
        argv, env=env, capture_output=True, text=True, check=False
      )
      self.assertEqual(done.returncode, 1, done.stderr)
      self.assertIn(message, done.stderr)
    for words, message in (
      (('A=1', 'A=2'), 'A is set twice'),
      (('/nowhere',), 'neither a directory'),
      (('BATCH_SIZ=4',), 'Did you mean BATCH_SIZE'),
    ):
      argv, env = self._command(programs.SERVE, *words, port=0)
      done = subprocess.run(
        argv, env=env, capture_output=True, text=True, check=False
      )
      self.assertEqual(done.returncode, 1, done.stderr)
      self.assertIn(message, done.stderr)

  def test_ask_without_a_question(self):
    argv, env = self._command('serve/ask')
    done = subprocess.run(
      argv,
      env=env,
      stdin=subprocess.DEVNULL,
      capture_output=True,
      text=True,
      check=False,
    )
    self.assertEqual(done.returncode, 1)
    self.assertIn('The question is empty', done.stderr)


if __name__ == '__main__':
  absltest.main()
