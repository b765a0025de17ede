import json
import pathlib
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import yaml

from harness.submission import endpoints_report
from harness.submission import existing_tree
from harness.submission import plan
from harness.submission import tree
from harness.submission.checks import submission_checks
from harness.submission.testing import jobs

# The parts of a report of the client 0.1.0 that the official checker reads.
_CONFIG = {
  'type': 'online',
  'model_params': {'streaming': 'on'},
  'settings': {
    'runtime': {
      'min_duration_ms': 600_000,
      'dataloader_random_seed': 2747215439041700203,
      'scheduler_random_seed': 16159082839903944936,
    }
  },
}
_SUMMARY = {
  'n_samples_issued': 13368,
  'n_samples_failed': 0,
  'complete': True,
  'ttft': {'early_stopping_percentiles': {'99.0': 499e6}},
  'tpot': {'early_stopping_percentiles': {'99.0': 29e6}},
}
_SCORES = {
  'accuracy_scores': [{'score': {'rouge1': 38.5}, 'total_samples': 13368}]
}
_MEASURED = {
  'input_data_types': 'int32',
  'retraining': 'no',
  'starting_weights_filename': 'tiny',
  'weight_data_types': 'fp32',
  'weight_transformations': 'none',
}


def _changed(record, path: str, value) -> dict[str, object]:
  """Returns a copy of a nested record with one other value."""
  copy = json.loads(json.dumps(record))
  *folders, last = path.split('/')
  inner = copy
  for folder in folders:
    inner = inner[int(folder) if folder.isdecimal() else folder]
  inner[last] = value
  return copy


class EndpointsReportTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.directory = pathlib.Path(self.create_tempdir().full_path)

  def submission(
    self,
    config=_CONFIG,
    summary=_SUMMARY,
    scores=_SCORES,
    scenario='Interactive',
    **values,
  ) -> plan.Submission:
    files = (yaml.safe_dump(config), json.dumps(summary), json.dumps(scores))
    for name, text in zip(endpoints_report.FILES, files, strict=True):
      path = self.directory / name
      path.parent.mkdir(exist_ok=True)
      path.write_text(text, 'utf-8')
    report = endpoints_report.read('llama3.1-8b', scenario, self.directory)
    plain = {
      'round': 'v6.1',
      'division': 'open',
      'category': 'datacenter',
      'submitter': 'Example',
      'system_name': 'box',
      'description': jobs.system_description(),
      'notes': {},
      'results': (),
      'measurements': _MEASURED,
      'reports': (report,),
    }
    return plan.Submission(**plain | values)

  def assert_problem(self, pattern: str, **values) -> None:
    (problem,) = submission_checks.problems(self.submission(**values))
    self.assertRegex(problem, pattern)

  def test_tree(self):
    submission = self.submission()
    self.assertEqual(submission_checks.problems(submission), [])
    self.assertEqual(submission_checks.notes(submission), [])
    sources = mock.Mock(return_value={'serve/serve.py': b'# A source.'})
    with mock.patch.object(plan, 'source_files', sources):
      files = plan.files(submission)
    folder = 'open/Example/results/box/llama3.1-8b/Interactive'
    self.assertCountEqual(
      files,
      [
        'open/Example/systems/box.json',
        'open/Example/src/llama3.1-8b/README.md',
        'open/Example/src/llama3.1-8b/serve/serve.py',
        f'{folder}/README.md',
        f'{folder}/accuracy/accuracy_results.json',
        f'{folder}/config.yaml',
        f'{folder}/measurements.json',
        f'{folder}/performance/result_summary.json',
      ],
    )
    root = pathlib.Path(self.create_tempdir().full_path, 'tree')
    tree.write(files, root)
    (restored,), problems = existing_tree.read(root, None, None)
    self.assertEqual(problems, [])
    self.assertLen(restored.reports, 1)
    self.assertEqual(list(existing_tree.problems(root, restored, ())), [])

  @parameterized.parameters(
    ('type', 'offline', 'type of config.yaml is offline, but .* be online'),
    ('settings/runtime/min_duration_ms', 5, 'min_duration_ms was 5, but'),
    ('settings/runtime/dataloader_random_seed', 1, 'dataloader.* is 1, but'),
    ('settings/runtime/scheduler_random_seed', 1, 'scheduler.* is 1, but'),
  )
  def test_settings(self, path, value, pattern):
    self.assert_problem(pattern, config=_changed(_CONFIG, path, value))

  @parameterized.parameters(
    ('n_samples_failed', 1, '1 samples failed'),
    ('complete', False, 'or the run did not end'),
    (
      'ttft/early_stopping_percentiles/99.0',
      5e8,
      'of TTFT .* is 500.0 ms, .* 500 ms',
    ),
    (
      'ttft/early_stopping_percentiles/99.0',
      None,
      'of TTFT .* missing, .* 662',
    ),
    ('tpot/early_stopping_percentiles/99.0', 3e7, 'of TPOT .* than 30 ms'),
  )
  def test_figures(self, path, value, pattern):
    self.assert_problem(pattern, summary=_changed(_SUMMARY, path, value))

  def test_scores(self):
    self.assert_problem('has no score', scores={'accuracy_scores': []})
    short = _changed(_SCORES, 'accuracy_scores/0/total_samples', 512)
    submission = self.submission(scores=short)
    self.assertEqual(submission_checks.problems(submission), [])
    (note,) = submission_checks.notes(submission)
    self.assertRegex(note, '512 samples were .* --skip-dataset-size-check')

  def test_unsupported_reports_are_refused(self):
    self.assert_problem('v6.0 has no runs of MLPerf Endp', round='v6.0')
    self.assert_problem('Offline, .* can be sub', scenario='MultiStream')
    self.assert_problem(
      'lacks retraining', measurements=_MEASURED | {'retraining': ''}
    )
    texts = submission_checks.problems(self.submission(division='closed'))
    self.assertRegex(texts[0], 'only to the open division')

  def test_missing_files_are_reported(self):
    with self.assertRaisesRegex(OSError, 'config.yaml'):
      endpoints_report.read('llama3.1-8b', 'Offline', self.directory)


if __name__ == '__main__':
  absltest.main()
