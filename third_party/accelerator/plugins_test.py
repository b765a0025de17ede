"""Tests that JAX finds only the libraries that --config selects.

  bazel test [--config=KIND] //third_party/accelerator:plugins_test

KIND is tpu, cuda or cuda12. The test needs no accelerator: the libraries are found if
they load. It does not test the machine's own drivers.
"""

import importlib
import importlib.metadata
import importlib.util
import os
import pathlib
import pkgutil
import re
import subprocess
import sys

from absl.testing import absltest

from saxml_ext.common.machine import accelerators

_ROOT = pathlib.Path(__file__).parents[2]
_BAZELRC = _ROOT / '.bazelrc'
_PIN = re.compile(r'^([a-z0-9-]+)(?:\[.*\])?==(\S+)', re.MULTILINE)
# A separate process asks JAX for a platform, and allows no other one.
_ASK = 'import jax; print(jax.devices()[0].platform)'


def _pins(group: str) -> dict[str, str]:
  """Returns the versions in a lock file by package."""
  path = _ROOT / 'third_party' / 'python' / f'{group}.lock'
  return dict(_PIN.findall(path.read_text(encoding='utf-8')))


def _cuda_major() -> int:
  """Returns the version of CUDA that --config selects."""
  return 12 if importlib.util.find_spec('jax_cuda12_plugin') else 13


def _ask(platform: str) -> subprocess.CompletedProcess[str]:
  return subprocess.run(
    [sys.executable, '-c', _ASK],
    env=os.environ
    | {
      'JAX_PLATFORMS': platform,
      'PYTHONPATH': os.pathsep.join(filter(None, sys.path)),
      # Another process may compile for TPU at the same time.
      'ALLOW_MULTIPLE_LIBTPU_LOAD': '1',
      'TPU_LOG_DIR': 'disabled',
    },
    capture_output=True,
    text=True,
    check=False,
  )


class PluginsTest(absltest.TestCase):
  def test_each_config_is_in_bazelrc(self):
    lines = _BAZELRC.read_text(encoding='utf-8').splitlines()
    for kind in ('tpu', 'cuda'):
      self.assertIn(f'build:{kind} --define=accelerator={kind}', lines)
    self.assertIn('build:cuda12 --config=cuda', lines)
    self.assertIn('build:cuda12 --define=cuda=12', lines)

  def test_locks_fit_together(self):
    jax, tpu = map(_pins, ('requirements', 'libtpu'))
    self.assertEqual(jax['jax'], jax['jaxlib'])
    self.assertEqual(set(tpu), {'libtpu'})
    for group, major in (('cuda', 13), ('cuda12', 12)):
      cuda = _pins(group)
      self.assertEqual(cuda[f'jax-cuda{major}-plugin'], jax['jax'])
      self.assertEqual(cuda[f'jax-cuda{major}-pjrt'], jax['jax'])
      # Otherwise, a program would have two versions of a package.
      self.assertEmpty(set(cuda) & set(jax))

  def test_no_accelerator_is_a_default(self):
    if accelerators.built_for() != 'tpu':
      self.assertIsNone(importlib.util.find_spec('libtpu'))
    if accelerators.built_for() != 'cuda':
      self.assertIsNone(importlib.util.find_spec('nvidia'))
      self.assertIsNone(importlib.util.find_spec('jax_plugins'))

  def test_jax_finds_libtpu(self):
    if accelerators.built_for() != 'tpu':
      self.skipTest('needs --config=tpu')
    path = importlib.import_module('libtpu').get_library_path()
    self.assertTrue(os.path.isfile(path), path)
    done = _ask('tpu')
    if done.returncode:
      # This message comes from libtpu, so libtpu was loaded.
      self.assertIn('TPU initialization failed', done.stderr)
    else:
      self.assertEqual(done.stdout, 'tpu\n')

  def test_jax_finds_its_plugin_for_cuda(self):
    if accelerators.built_for() != 'cuda':
      self.skipTest('needs --config=cuda')
    plugins = importlib.import_module('jax_plugins')
    names = [module.name for module in pkgutil.iter_modules(plugins.__path__)]
    self.assertEqual(names, [f'xla_cuda{_cuda_major()}'])
    name = f'jax_plugins.{names[0]}'
    declared = importlib.metadata.entry_points(group='jax_plugins')
    self.assertEqual([entry.value for entry in declared], [name])
    plugin = importlib.import_module(name)
    self.assertTrue(os.path.isfile(plugin._get_library_path()))
    done = _ask('cuda')
    if done.returncode:
      # NVIDIA's libraries were loaded and are new enough. The driver is checked
      # next.
      self.assertIn('cuInit(0) failed', done.stderr)
    else:
      self.assertEqual(done.stdout, 'gpu\n')

  def test_nvidia_libraries_load_each_other(self):
    if accelerators.built_for() != 'cuda':
      self.skipTest('needs --config=cuda')
    major = _cuda_major()
    plugin = importlib.import_module(f'jax_plugins.xla_cuda{major}')
    plugin._load_nvidia_libraries()
    versions = importlib.import_module(f'jax_cuda{major}_plugin._versions')
    # These are the major versions. A library that fails to load raises an
    # error.
    self.assertEqual(versions.cudnn_get_version() // 10000, 9)
    self.assertEqual(versions.cublas_get_version() // 10000, major)
    self.assertEqual(versions.cusparse_get_version() // 1000, 12)
    self.assertEqual(versions.cufft_get_version() // 1000, major - 1)


if __name__ == '__main__':
  absltest.main()
