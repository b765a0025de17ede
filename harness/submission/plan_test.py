import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import unittest
from unittest import mock

from absl.testing import absltest

from harness.benchmarks import bert
from harness.submission import plan
from harness.submission.testing import jobs
from serve import programs

_GPTJ = jobs.Job(target_qps=100, samples=300, width=32)
_BERT = jobs.Job(benchmark=bert.BERT, round='v5.1', target_qps=100, samples=50)


@unittest.skipUnless(shutil.which('git'), 'There is no git here.')
class PlanTest(absltest.TestCase):
  """Tests trees of real logs."""

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    root = pathlib.Path(absltest.get_default_test_tmpdir(), 'plan')
    shutil.rmtree(root, ignore_errors=True)
    jobs.make(root / 'gptj', _GPTJ)
    jobs.make(root / 'bert', _BERT)
    jobs.make_compliance(root / 'bert', _BERT, 'TEST01')
    cls.gptj = jobs.load(root / 'gptj')
    cls.bert = jobs.load(root / 'bert')
    jobs.make(root / 'other', _BERT)
    jobs.make_compliance(root / 'other', _BERT, 'TEST01', shift=9)
    cls.other = jobs.load(root / 'other')

  def setUp(self):
    super().setUp()
    self.enter_context(
      mock.patch.dict(os.environ, {plan.WORKSPACE: programs.ROOT})
    )

  def test_layout_until_v5_1(self):
    files = plan.files(jobs.submission(self.gptj))
    code = 'open/Example/code/gptj-99/harness'
    sources = {path for path in files if path.startswith(f'{code}/')}
    self.assertIn(f'{code}/harness/loadgen/runner.py', sources)
    self.assertFalse(any('_test.py' in path for path in sources))
    for path in sources - {f'{code}/README.md'}:
      del files[path]
    base = 'open/Example'
    measured = f'{base}/measurements/box/gptj-99/Offline'
    results = f'{base}/results/box/gptj-99/Offline'
    self.assertCountEqual(
      files,
      [
        f'{base}/systems/box.json',
        f'{base}/code/gptj-99/harness/README.md',
        f'{measured}/README.md',
        f'{measured}/box_harness_Offline.json',
        f'{measured}/mlperf.conf',
        f'{measured}/user.conf',
        f'{results}/accuracy/accuracy.txt',
        f'{results}/accuracy/mlperf_log_accuracy.json',
        f'{results}/accuracy/mlperf_log_detail.txt',
        f'{results}/accuracy/mlperf_log_summary.txt',
        f'{results}/performance/run_1/mlperf_log_detail.txt',
        f'{results}/performance/run_1/mlperf_log_summary.txt',
      ],
    )
    system = json.loads(files[f'{base}/systems/box.json'])
    self.assertEqual(system['submitter'], 'Example')
    self.assertEqual(system['division'], 'open')
    self.assertEqual(system['system_type'], 'edge')
    values = json.loads(files[f'{measured}/box_harness_Offline.json'])
    self.assertEqual(values['weight_data_types'], 'fp32')
    self.assertIn(
      b'gptj.Offline.qsl_rng_seed = 13281865557512327830\n',
      files[f'{measured}/mlperf.conf'],
    )

  def test_accuracy_log_is_cut_and_hashed(self):
    folder = 'open/Example/results/box/gptj-99/Offline/accuracy'
    files = plan.files(jobs.submission(self.gptj))
    log = self.gptj[0].accuracy_dir / 'mlperf_log_accuracy.json'
    whole = log.read_bytes()
    short = files[f'{folder}/mlperf_log_accuracy.json']
    self.assertGreater(len(whole), 10 * 1024)
    self.assertEqual(short, whole[:4096] + b'\n\n...\n\n' + whole[-4096:])
    text = files[f'{folder}/accuracy.txt'].decode()
    # The official checkers use this pattern.
    self.assertEqual(re.match(r".*'rouge1':\s([\d.]+).*", text).group(1), '5.1')
    digest = hashlib.sha256(whole).hexdigest()
    self.assertEqual(text.splitlines()[1:], [f'hash={digest}'])

  def test_rounds_own_mlperf_conf(self):
    empty = pathlib.Path(self.create_tempdir().full_path)
    files = plan.files(jobs.submission(self.gptj, inference_dir=empty))
    self.assertIn(
      b'as LoadGen logged them',
      files['open/Example/measurements/box/gptj-99/Offline/mlperf.conf'],
    )
    later = plan.files(jobs.submission(self.gptj, round='v5.0'))
    self.assertFalse([path for path in later if path.endswith('mlperf.conf')])

  def test_custom_model_of_the_open_division(self):
    files = plan.files(jobs.submission(self.gptj, model_name='tiny-gptj'))
    self.assertEqual(
      json.loads(files['open/Example/model_mapping.json']),
      {'tiny-gptj': 'gptj-99'},
    )
    self.assertIn('open/Example/code/tiny-gptj/harness/README.md', files)
    self.assertIn(
      'open/Example/results/box/tiny-gptj/Offline/accuracy/accuracy.txt', files
    )

  def test_closed_bert_has_its_compliance_tests(self):
    files = plan.files(jobs.submission(self.bert, division='closed'))
    base = 'closed/Example'
    test = f'{base}/compliance/box/bert-99/Offline/TEST01'
    self.assertCountEqual(
      [path for path in files if path.startswith(f'{base}/compliance')],
      [
        f'{test}/verify_accuracy.txt',
        f'{test}/verify_performance.txt',
        f'{test}/accuracy/accuracy.txt',
        f'{test}/accuracy/mlperf_log_accuracy.json',
        f'{test}/performance/run_1/mlperf_log_detail.txt',
        f'{test}/performance/run_1/mlperf_log_summary.txt',
      ],
    )
    self.assertIn(b'TEST PASS', files[f'{test}/verify_accuracy.txt'])
    self.assertRegex(
      files[f'{test}/accuracy/accuracy.txt'].decode(), r'^hash=[0-9a-f]{64}\n$'
    )
    self.assertLess(
      len(files[f'{test}/accuracy/mlperf_log_accuracy.json']), 10240
    )
    self.assertIn(b'* bert-99: fp32', files[f'{base}/calibration.md'])
    page = pathlib.Path(self.create_tempfile(content='# How').full_path)
    given = plan.files(
      jobs.submission(self.bert, division='closed', calibration=page)
    )
    self.assertEqual(given[f'{base}/calibration.md'], page)

  def test_different_answers_are_scored(self):
    files = plan.files(jobs.submission(self.other, division='closed'))
    folder = 'closed/Example/compliance/box/bert-99/Offline/TEST01'
    self.assertIn(b'TEST FAIL', files[f'{folder}/verify_accuracy.txt'])
    for name in ('baseline_accuracy.txt', 'compliance_accuracy.txt'):
      self.assertEqual(
        files[f'{folder}/accuracy/{name}'],
        self.other[0].compliance_dir('TEST01') / name,
      )

  def test_layout_from_v6_0(self):
    files = plan.files(
      jobs.submission(self.bert, division='closed', round='v6.1')
    )
    base = 'closed/Example'
    folder = f'{base}/results/box/bert-99/Offline'
    for path in (
      f'{base}/src/bert-99/README.md',
      f'{base}/systems/box.json',
      f'{folder}/measurements.json',
      f'{folder}/README.md',
      f'{folder}/user.conf',
      f'{folder}/accuracy/accuracy.txt',
      f'{folder}/TEST01/verify_performance.txt',
      f'{folder}/TEST01/performance/run_1/mlperf_log_detail.txt',
    ):
      self.assertIn(path, files)
    kinds = {path.split('/')[2] for path in files if path.count('/') > 2}
    self.assertEqual(kinds, {'systems', 'src', 'results'})

  def test_diagram_of_the_network_division(self):
    picture = pathlib.Path(self.create_tempfile('my net.svg').full_path)
    files = plan.files(
      jobs.submission(
        self.gptj,
        division='network',
        category='datacenter',
        diagram=picture,
      )
    )
    base = 'network/Example'
    self.assertEqual(files[f'{base}/documentation/my_net.svg'], picture)
    system = json.loads(files[f'{base}/systems/box.json'])
    self.assertEqual(system['is_network'], 'True')
    self.assertEqual(system['division'], 'network')
    results = f'{base}/results/box/gptj-99/Offline'
    self.assertIn(f'{results}/accuracy/accuracy.txt', files)

  def test_several_models(self):
    bert = plan.files(jobs.submission(self.bert + self.gptj))
    self.assertIn('open/Example/code/gptj-99/harness/README.md', bert)
    self.assertIn('open/Example/code/bert-99/harness/README.md', bert)


_IDENTITY = ('-c', 'user.name=A', '-c', 'user.email=a@example.org')


@unittest.skipUnless(shutil.which('git'), 'There is no git here.')
class CodeTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.root = pathlib.Path(self.create_tempdir().full_path)
    self.enter_context(
      mock.patch.dict(os.environ, {plan.WORKSPACE: str(self.root)})
    )
    for path in (
      'harness/network/client.py',
      'harness/network/client_test.py',
      'harness/network/testing/fake.py',
      'harness/network/dispatch.proto',
      'harness/network/BUILD',
      'harness/network/weights.safetensors',
      'docs/page.py',
    ):
      (self.root / path).parent.mkdir(parents=True, exist_ok=True)
      (self.root / path).write_text('old')
    (self.root / 'harness/__init__.py').touch()
    self.git('init', '-q')
    self.git('add', '.')
    self.git('commit', '-qm', 'one')

  def git(self, *arguments: str) -> str:
    done = subprocess.run(
      ['git', *_IDENTITY, *arguments],
      cwd=self.root,
      check=True,
      capture_output=True,
      encoding='utf-8',
    )
    return done.stdout.strip()

  def test_sources_of_the_results_commit(self):
    commit = self.git('rev-parse', 'HEAD')
    (self.root / 'harness/network/client.py').write_text('new')
    sources = plan.source_files(commit)
    self.assertEqual(
      sources,
      {
        'harness/network/client.py': b'old',
        'harness/network/dispatch.proto': b'old',
        'harness/network/BUILD': b'old',
      },
    )
    # Changed files belong to no commit.
    for other in (f'{commit}-dirty', '', '0' * 40):
      sources = plan.source_files(other)
      self.assertLen(sources, 3)
      self.assertEqual(sources['harness/network/client.py'], b'new')


if __name__ == '__main__':
  absltest.main()
