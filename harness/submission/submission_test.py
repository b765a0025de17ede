import json
import os
import pathlib
import shutil
import subprocess
import tarfile
import unittest

from absl.testing import absltest

from harness.benchmarks import llama
from harness.results import entry as entry_lib
from harness.rules import rounds
from harness.submission import plan
from harness.submission.testing import jobs
from serve import programs

_FLAGS = {'submitter': 'Example', 'system_name': 'box'}
_IDENTITY = {
  'GIT_AUTHOR_NAME': 'A',
  'GIT_AUTHOR_EMAIL': 'a@example.org',
  'GIT_COMMITTER_NAME': 'A',
  'GIT_COMMITTER_EMAIL': 'a@example.org',
}


@unittest.skipUnless(shutil.which('git'), 'There is no git here.')
class SubmissionTest(absltest.TestCase):
  """Tests the program from the command line."""

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.made = pathlib.Path(absltest.get_default_test_tmpdir(), 'submission')
    shutil.rmtree(cls.made, ignore_errors=True)
    jobs.make(cls.made / 'offline', jobs.Job(target_qps=100))
    stream = jobs.Job(
      scenario=rounds.SINGLE_STREAM,
      target_latency_ms=1.0,
      answer_secs=0.0005,
    )
    jobs.make(cls.made / 'stream', stream)

  def setUp(self):
    super().setUp()
    self.root = pathlib.Path(self.create_tempdir().full_path)
    self.workspace = {plan.WORKSPACE: programs.ROOT}

  def run_program(self, *arguments: str, **flags) -> tuple[int, str]:
    return self.run_plain(*arguments, **_FLAGS | flags)

  def run_plain(self, *arguments: str, **flags) -> tuple[int, str]:
    command = programs.command(
      'harness/submission/submission',
      flags,
      _IDENTITY | self.workspace | {'BUILD_WORKING_DIRECTORY': str(self.root)},
    )
    done = subprocess.run(
      command.argv + arguments,
      env=command.env,
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      encoding='utf-8',
    )
    return done.returncode, done.stdout

  @property
  def results(self) -> list[str]:
    return [f'--result={self.made / name}' for name in ('offline', 'stream')]

  def test_program_started_without_bazel(self):
    self.workspace = {}
    code, output = self.run_program(*self.results)
    self.assertEqual(code, 1)
    self.assertIn('Use `./bazelw run //harness:submission`', output)
    self.assertFalse((self.root / 'submission').exists())

  def test_tree_archive_and_branch(self):
    repo = self.root / 'clone'
    subprocess.run(['git', 'init', '-q', repo], check=True)
    notes = '--hw_notes_extra=Fans at full speed'
    code, output = self.run_program(
      *self.results, notes, '--tar', repo='clone', git_branch='mine'
    )
    self.assertEqual(code, 0, output)
    tree = self.root / 'submission'
    self.assertIn('open submission to v4.0: 2 results, ', output)
    files = sum(path.is_file() for path in tree.rglob('*'))
    self.assertIn(f' results, {files} files in {tree}', output)
    system = json.loads((tree / 'open/Example/systems/box.json').read_text())
    self.assertEqual(system['hw_notes'], 'N/A. Fans at full speed')
    with tarfile.open(self.root / 'submission.tar.gz') as archive:
      self.assertLen(archive.getnames(), files)
    self.assertIn(f'git -C {repo} push origin mine', output)
    names = subprocess.run(
      ['git', '-C', repo, 'ls-tree', '-r', '--name-only', 'mine'],
      capture_output=True,
      encoding='utf-8',
    )
    self.assertLen(names.stdout.split(), files)

  def test_all_problems_are_reported_and_nothing_is_written(self):
    code, output = self.run_program(
      *self.results,
      '--result=nowhere',
      division='closed',
      git_branch='mine',
      run_checker='true',
    )
    self.assertEqual(code, 1)
    self.assertIn('submission: nothing was written because of ', output)
    for text in (
      "'nowhere' is neither a directory nor the id",
      '--git_branch needs --repo',
      '--run_checker needs --inference_dir. Run "git clone',
      'min_duration was 100 ms',
      'closed requires the whole set of 13368.',
      'rouge1 is 5.1, but gptj-99 requires at least 42.556635',
    ):
      self.assertIn(text, output)
    self.assertNotIn('Traceback', output)
    self.assertEqual(os.listdir(self.root), [])

  def test_the_network_division_has_rules_of_its_own(self):
    code, output = self.run_program(*self.results, division='network')
    self.assertEqual(code, 1)
    self.assertIn('requires a diagram', output)

  def test_tree_is_replaced_only_with_clean(self):
    self.assertEqual(self.run_program(*self.results)[0], 0)
    code, output = self.run_program(*self.results)
    self.assertEqual(code, 1)
    self.assertIn('is not empty. Pass another --output, or --clean', output)
    code, output = self.run_program(
      self.results[0], '--clean', f'--tar={self.root / "out.tgz"}'
    )
    self.assertEqual(code, 0, output)
    self.assertFalse(any(self.root.rglob('SingleStream')))
    self.assertTrue((self.root / 'out.tgz').is_file())

  def test_refusal_of_the_checker_is_reported(self):
    tools = self.root / 'inference' / 'tools' / 'submission'
    tools.mkdir(parents=True)
    (tools / 'submission_checker.py').write_text(
      'VERSIONS = {"v4.0": 1}\n'
      'print("[a.py:1 ERROR] this is wrong")\n'
      'print("[a.py:2 ERROR] SUMMARY: submission has errors")\n'
    )
    code, output = self.run_program(
      *self.results, '--run_checker', inference_dir='inference'
    )
    self.assertEqual(code, 1)
    self.assertIn('[a.py:1 ERROR] this is wrong\n', output)
    self.assertIn('SUMMARY: submission has errors\n', output)
    self.assertIn('The official checker rejected ', output)
    code, output = self.run_plain(
      '--run_checker',
      check='submission',
      inference_dir='inference',
      checker_revision='old',
    )
    self.assertEqual(code, 1)
    self.assertIn('--checker_revision=old has no tools/submission', output)

  def test_check_of_a_tree(self):
    tree = self.root / 'submission'
    self.assertEqual(self.run_program(*self.results)[0], 0)
    code, output = self.run_plain(*self.results, check='submission')
    self.assertEqual(code, 0, output)
    self.assertEqual(
      output.strip(),
      f'{tree}: 2 results follow all rules that can be checked',
    )
    folder = 'results/box/gptj-99/SingleStream/performance/run_1'
    run = tree / 'open/Example' / folder
    jobs.edit(run, early_stopping_latency_ss=10)
    code, output = self.run_plain(check=tree)
    self.assertEqual(code, 1)
    self.assertIn(f'{tree}: 2 problems:\n  * {run.parents[1]}: ', output)
    self.assertIn(f'submission: {tree} breaks rules', output)
    code, output = self.run_plain(check='nowhere')
    self.assertEqual(code, 1)
    self.assertIn(f'{self.root / "nowhere"} has no results', output)

  def test_check_together_with_the_official_checker(self):
    self.assertEqual(self.run_program(self.results[0])[0], 0)
    tools = self.root / 'inference' / 'tools' / 'submission'
    tools.mkdir(parents=True)
    (tools / 'submission_checker.py').write_text(
      'import sys; VERSIONS = {"v4.0": 1}\n'
      'print("[a.py:2 ERROR]", *sys.argv[2:4])\n'
      'print("[a.py:2 ERROR] SUMMARY: submission has errors")\n'
    )
    code, output = self.run_plain(
      '--run_checker', check='submission', inference_dir='inference'
    )
    self.assertEqual(code, 1)
    self.assertIn('--version=v4.0 --submitter=Example', output)
    self.assertNotRegex(output, '[0-9] problems')

  def test_llama_with_a_part_of_the_set(self):
    job = self.root / 'llama'
    jobs.make(
      job,
      jobs.Job(benchmark=llama.LLAMA_EDGE, round='v6.1', target_qps=100),
    )
    log = job / 'performance' / 'run_1'
    jobs.last(log, 601, effective_min_duration_ms=rounds.MIN_DURATION_MS)
    checker = self.root / 'inference/tools/submission/submission_checker'
    checker.mkdir(parents=True)
    (checker / 'constants.py').write_text('"v6.1"')
    (checker / 'main.py').write_text(
      'import sys; OPTIONS = "--skip-dataset-size-check"\n'
      'print("[a.py:2 ERROR]", sys.argv[-1])\n'
      'print("[a.py:2 INFO] SUMMARY: submission looks OK")\n'
    )
    code, output = self.run_program(
      f'--result={job}', '--run_checker', inference_dir='inference'
    )
    self.assertEqual(code, 0, output)
    self.assertRegex(
      output,
      'note: llama3.1-8b-edge Offline .* has 20 samples, but the checker of'
      ' v6.1 expects all 5000 .* only with --skip-dataset-size-check[.]\n',
    )
    self.assertIn('[a.py:2 ERROR] --skip-dataset-size-check\n', output)
    self.assertIn('--skip-dataset-size-check): SUMMARY: submission lo', output)
    folder = 'open/Example/results/box/llama3.1-8b-edge/Offline'
    self.assertTrue((self.root / 'submission' / folder / 'user.conf').is_file())
    code, output = self.run_program(
      *(f'--result={job}', '--clean'), division='closed'
    )
    self.assertEqual(code, 1)
    for text in (
      'llama3.1-8b-edge lacks SingleStream',
      'accuracy run had 20 samples, but closed requires the whole set of 5000',
      'rouge1 is 6.1, but llama3.1-8b-edge requires at least 38.6694',
      'rougeLsum is 5.3, but llama3.1-8b-edge requires at least 35.76276',
      '20 answers were scored, but closed requires 5000',
    ):
      self.assertIn(text, output)

  def test_misnamed_reports_are_refused(self):
    code, output = self.run_program('--endpoints_report=reports')
    self.assertEqual(code, 1)
    self.assertIn('=reports is not MODEL/SCENARIO=DIR, such as', output)

  def test_flags_without_effect_are_refused(self):
    code, output = self.run_plain(
      '--clean', check='submission', output='new', division='closed'
    )
    self.assertEqual(code, 1)
    for given in ('--output=new', '--division=closed', '--clean'):
      self.assertIn(f'{given} has no effect. It acts only without', output)
    code, output = self.run_program(
      self.results[0],
      checker_revision='master',
      repo='clone',
      system_diagram='a.svg',
    )
    self.assertEqual(code, 1)
    for given, needed in (
      ('--checker_revision=master', '--run_checker'),
      ('--repo=clone', '--git_branch'),
      ('--system_diagram=a.svg', '--division=network'),
    ):
      message = f'{given} has no effect. It acts only with {needed}.'
      self.assertIn(message, output)
    code, output = self.run_plain(self.results[0])
    self.assertEqual(code, 1)
    self.assertIn('Pass --submitter and --system_name, or --check', output)

  def test_missing_files_are_reported(self):
    for flag in ('system_description', 'measurements'):
      code, output = self.run_program(self.results[0], **{flag: 'absent'})
      self.assertEqual(code, 1)
      self.assertIn(f'{self.root / "absent"}: No such file', output)
      self.assertNotIn('Errno', output)

  def test_results_of_the_cache(self):
    store = self.root / 'cache' / 'results'
    stored = entry_lib.read(str(self.made / 'offline')).id
    shutil.copytree(self.made / 'offline', store / f'gptj-99_{stored}')
    arguments = (f'--result={stored[:5]}', '--result=abc123')
    code, output = self.run_program(*arguments, cache_dir='cache')
    self.assertEqual(code, 1)
    self.assertIn('1 problems', output)
    self.assertIn("abc123: 'abc123' is neither a directory nor", output)
    code, output = self.run_program(arguments[0], cache_dir='cache')
    self.assertEqual(code, 0, output)

  def test_no_result(self):
    code, output = self.run_program()
    self.assertEqual(code, 1)
    self.assertIn('There are no results to submit. Pass --result.', output)


if __name__ == '__main__':
  absltest.main()
