"""Tests that modules run as Bazel would run them one by one."""

import os
import pathlib
import shutil
import subprocess
import sys
from xml.etree import ElementTree

from absl.testing import absltest

_RUNNER = pathlib.Path(__file__).with_name('run_tests.py')
_MODULE = """
import os
import signal
import sys
import unittest

from absl.testing import absltest

class ExampleTest(absltest.TestCase):
  def test_it(self):
    {}

  def test_other(self):
    self.skipTest('no reason')

if __name__ == '__main__':
  absltest.main()
"""


class RunTestsTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.root = pathlib.Path(self.create_tempdir().full_path)
    folder = self.root / 'third_party' / 'lint'
    folder.mkdir(parents=True)
    self.runner = shutil.copy(_RUNNER, folder)
    self.report = self.root / 'report.xml'

  def write(self, name: str, body: str) -> str:
    (self.root / name).write_text(_MODULE.format(body))
    return name

  def run_tests(
    self, *arguments: str, **variables: str
  ) -> subprocess.CompletedProcess[str]:
    removed = {'TESTBRIDGE_TEST_ONLY', 'TEST_TOTAL_SHARDS'}
    kept = {k: v for k, v in os.environ.items() if k not in removed}
    return subprocess.run(
      [sys.executable, self.runner, *arguments],
      env=kept
      | {
        'PYTHONPATH': os.pathsep.join(filter(None, sys.path)),
        'TEST_TMPDIR': str(self.root),
        'XML_OUTPUT_FILE': str(self.report),
      }
      | variables,
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
      check=False,
    )

  def test_modules_pass(self):
    names = [self.write(f'{name}_test.py', 'pass') for name in 'ab']
    done = self.run_tests(*names, '--')
    self.assertEqual(done.returncode, 0, done.stdout)
    for name in names:
      self.assertIn(f'{name} passed: 1 tests ran, 1 skipped', done.stdout)
    cases = list(ElementTree.parse(self.report).iter('testcase'))
    self.assertLen(cases, 4)

  def test_modules_share_neither_modules_nor_folders(self):
    first = self.write('a_test.py', 'sys.flag = self.create_tempfile("f")')
    second = self.write(
      'b_test.py',
      'self.assertFalse(hasattr(sys, "flag"))\n'
      '    self.assertEmpty(os.listdir(os.environ["TEST_TMPDIR"]))',
    )
    done = self.run_tests(first, second)
    self.assertEqual(done.returncode, 0, done.stdout)

  def test_failure_is_reported_and_the_others_run(self):
    first = self.write('a_test.py', 'self.fail("Example reason")')
    second = self.write('b_test.py', 'pass')
    done = self.run_tests(first, second)
    self.assertEqual(done.returncode, 1)
    self.assertIn('Example reason', done.stdout)
    self.assertIn(f'{first} failed: exited with 1', done.stdout)
    self.assertIn(f'{second} passed: 1 tests', done.stdout)
    self.assertIn('Failed: bazel test //:a_test', done.stdout)
    cases = list(ElementTree.parse(self.report).iter('testcase'))
    self.assertLen(cases, 5)

  def test_crash_is_a_failure(self):
    name = self.write('a_test.py', 'os.kill(os.getpid(), signal.SIGKILL)')
    done = self.run_tests(name)
    self.assertEqual(done.returncode, 1)
    self.assertIn(f'{name} failed: ended by SIGKILL', done.stdout)
    (case,) = ElementTree.parse(self.report).iter('testcase')
    self.assertEqual(case.find('error').get('message'), 'ended by SIGKILL')

  def test_module_without_tests_is_a_failure(self):
    (self.root / 'a_test.py').touch()
    (self.root / 'b_test.py').write_text(
      'from absl.testing import absltest; absltest.main()'
    )
    done = self.run_tests('a_test.py', 'b_test.py')
    self.assertEqual(done.returncode, 1)
    for name in 'ab':
      self.assertIn(f'{name}_test.py failed: ran no test', done.stdout)

  def test_no_module_is_an_error(self):
    done = self.run_tests('--')
    self.assertEqual(done.returncode, 2)
    self.assertIn('no module is named', done.stdout)

  def test_module_whose_tests_are_all_skipped(self):
    name = self.write('a_test.py', 'self.skipTest("no reason")')
    done = self.run_tests(name)
    self.assertEqual(done.returncode, 0, done.stdout)
    self.assertIn(f'{name} skipped: 0 tests ran, 2 skipped', done.stdout)

  def test_filter_selects_tests(self):
    first = self.write('a_test.py', 'pass')
    second = self.write('b_test.py', 'pass')
    second_text = (self.root / second).read_text().replace('test_it', 'test_b')
    (self.root / second).write_text(second_text)
    done = self.run_tests(first, second, TESTBRIDGE_TEST_ONLY='*.test_b')
    self.assertEqual(done.returncode, 0, done.stdout)
    self.assertIn(f'{first} skipped: 0 tests ran, 0 skipped', done.stdout)
    self.assertIn(f'{second} passed: 1 tests ran, 0 skipped', done.stdout)

  def test_arguments_reach_the_modules(self):
    name = self.write('a_test.py', 'pass')
    done = self.run_tests(name, '--', 'ExampleTest.test_it')
    self.assertIn(f'{name} passed: 1 tests ran, 0 skipped', done.stdout)

  def test_shards_divide_modules(self):
    names = [self.write(f'{name}_test.py', 'pass') for name in 'abc']
    status = self.root / 'status'
    for index, expected in enumerate((('a', 'c'), ('b',))):
      done = self.run_tests(
        *names,
        TEST_SHARD_INDEX=str(index),
        TEST_TOTAL_SHARDS='2',
        TEST_SHARD_STATUS_FILE=str(status),
      )
      self.assertEqual(done.returncode, 0, done.stdout)
      self.assertTrue(status.exists())
      for name in 'abc':
        line = f'{name}_test.py passed: 1 tests ran, 1 skipped'
        self.assertEqual(line in done.stdout, name in expected, done.stdout)

  def test_shards_divide_the_methods_of_one_module(self):
    name = self.write('a_test.py', 'pass')
    status = self.root / 'status'
    for index, counts in enumerate(('1 tests ran, 0', '0 tests ran, 1')):
      done = self.run_tests(
        name,
        TEST_SHARD_INDEX=str(index),
        TEST_TOTAL_SHARDS='2',
        TEST_SHARD_STATUS_FILE=str(status),
      )
      self.assertEqual(done.returncode, 0, done.stdout)
      self.assertTrue(status.exists())
      self.assertIn(f'{counts} skipped', done.stdout)
      status.unlink()

  def test_modules_collect_garbage_rarely(self):
    name = self.write(
      'a_test.py',
      'import gc\n'
      '    self.assertTrue(gc.isenabled())\n'
      '    self.assertGreater(gc.get_threshold()[0], 10_000)\n'
      '    self.assertGreater(gc.get_freeze_count(), 1_000)',
    )
    done = self.run_tests(name)
    self.assertEqual(done.returncode, 0, done.stdout)

  def test_children_of_a_module_end_with_it(self):
    name = self.write(
      'a_test.py', 'import subprocess; subprocess.Popen(["sleep", "10000"])'
    )
    # The output ends when no process can write to it.
    done = self.run_tests(name)
    self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == '__main__':
  absltest.main()
