"""Installs the wheel into a new environment and runs its programs.

pip installs it without dependencies, because a test has no network. The
dependencies come from the directories of this test's own packages.
"""

import glob
import json
import os
import subprocess
import sys
import urllib.request
import venv

from absl.testing import absltest
import pip

from converters.testing import small_models
from saxml_ext.common import net

# Each program starts a Python that imports jax or gRPC, which takes long on
# slow machines.
_TIMEOUT_SECONDS = 120


def _packages() -> list[str]:
  """Returns the directories of this test's packages, without the machine's."""
  return [
    path
    for path in sys.path
    if path.endswith('site-packages')
    and not path.startswith((sys.prefix, sys.base_prefix))
  ]


def _install(distribution: str) -> str:
  """Returns a new environment with the wheel of a distribution."""
  (wheel,) = glob.glob(f'deploy/wheel/{distribution}-*.whl')
  root = absltest.TEST_TMPDIR.value
  home = os.path.join(root, distribution)
  venv.create(home, symlinks=True)
  # Ubuntu 22.04's pip does not support `pip --python`.
  packages = os.path.dirname(os.path.dirname(pip.__file__))
  subprocess.run(
    [f'{home}/bin/python', '-m', 'pip', '--disable-pip-version-check']
    + ['install', '--quiet', '--no-deps', '--no-index', os.path.abspath(wheel)],
    env={'PYTHONPATH': packages, 'HOME': root},
    check=True,
  )
  return home


class WheelTest(absltest.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.root = absltest.TEST_TMPDIR.value
    cls.home = _install('gptj_sax')
    cls.client_home = _install('gptj_sax_client')

  def run_program(
    self, *command: str, status: int = 0, home: str | None = None
  ) -> str:
    """Runs a program of an environment and returns all of its output."""
    done = subprocess.run(
      [os.path.join(home or self.home, 'bin', command[0]), *command[1:]],
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
      cwd=self.root,
      env={'PYTHONPATH': os.pathsep.join(_packages()), 'HOME': self.root},
      timeout=_TIMEOUT_SECONDS,
    )
    self.assertEqual(done.returncode, status, done.stdout)
    return done.stdout

  def test_nothing_comes_from_the_workspace(self):
    out = self.run_program(
      'python', '-c', 'import saxml_ext.client.sax as m; print(m.__file__)'
    )
    self.assertStartsWith(out, self.home)

  def test_help_of_every_program(self):
    self.assertIn('lm.generate', self.run_program('saxutil', 'help'))
    for program, word in (
      ('convert_gptj_ckpt', '--base'),
      ('convert_llama_ckpt', '--model_size'),
      ('offline_quantize', '--quantization_configs'),
      ('verify_ckpt', '--source'),
      ('random_gptj', '--layers'),
      ('gptj-sax', 'admin-server'),
    ):
      self.assertIn(word, self.run_program(program, '--help'))
    for program, word in (
      ('admin-config', '--fs_root'),
      ('admin-server', '--sax_cell'),
      ('server', '--platform_chip'),
      ('gateway', '--served_model_name'),
      ('serve', '--max_model_len'),
    ):
      self.assertIn(word, self.run_program('gptj-sax', program, '--help'))
    self.assertIn('gptj-sax 1', self.run_program('gptj-sax', '--version'))
    self.assertIn(
      "unknown command 'sevre'",
      self.run_program('gptj-sax', 'sevre', status=2),
    )

  def test_client_alone(self):
    out = self.run_program(
      'python',
      '-c',
      'import sax, sys; from saxml_ext.client import sax_aio;'
      'print(sax.__file__, {"jax", "numpy"} & set(sys.modules))',
      home=self.client_home,
    )
    self.assertStartsWith(out, self.client_home)
    self.assertEndsWith(out, ' set()\n')
    out = self.run_program('saxutil', 'help', home=self.client_home)
    self.assertIn('lm.generate', out)

  def test_converts_and_quantizes(self):
    small_models.save(os.path.join(self.root, 'hf'))
    out = self.run_program(
      'python', '-m', 'convert_gptj_ckpt', '--base=hf', '--pax=pax', '--verify'
    )
    self.assertIn('All 21 variables match', out)
    out = self.run_program(
      'offline_quantize',
      '--input_dir=pax/checkpoint_00000000/state',
      '--output_dir=int8/checkpoint_00000000/state',
      '--quantization_configs=gptj',
    )
    self.assertIn('1 self_attention.post', out)
    out = self.run_program('verify_ckpt', '--source=pax', '--pax=int8')
    self.assertIn('All 21 variables match', out)

  def test_serves_the_bundled_model_without_compiling(self):
    port = str(net.pick_free_port())
    environment = {
      'PYTHONPATH': os.pathsep.join(_packages()),
      'HOME': self.root,
    }
    serve = subprocess.Popen(
      [f'{self.home}/bin/gptj-sax', 'serve', 'gptj-small', f'--port={port}'],
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
      env=environment,
    )
    self.addCleanup(serve.wait)
    self.addCleanup(serve.terminate)
    printed = []
    for line in serve.stdout:
      printed.append(line)
      if line.startswith('Ready: '):
        break
    else:
      self.fail(''.join(printed))
    body = json.dumps({'prompt': 'The court said', 'max_tokens': 4}).encode()
    request = urllib.request.Request(
      f'http://127.0.0.1:{port}/v1/completions',
      body,
      {'Content-Type': 'application/json'},
    )
    with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:
      answer = json.load(response)
    self.assertEqual(answer['usage']['completion_tokens'], 4)
    (log,) = glob.glob(
      f'{self.root}/.cache/gptj_sax/serve/*/logs/model_server.log'
    )
    with open(log, encoding='utf-8') as f:
      self.assertIn(' loaded, 0 compiled ', f.read())

  def test_kernels_are_included(self):
    out = self.run_program(
      'python',
      '-c',
      'from saxml_ext.engine.kernels import kernels; print(kernels.usable())',
    )
    self.assertEqual(out.strip(), 'True')


if __name__ == '__main__':
  absltest.main()
