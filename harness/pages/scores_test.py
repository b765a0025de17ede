"""Tests the accuracy section."""

from absl.testing import absltest

from harness.pages import run_page
from harness.pages import scores
from harness.pages.testing import jobs
from harness.results import entry as entry_lib
from saxml_ext.common.pages.testing import reading

_OFFICIAL = {
  'rouge1': 42.97,
  'rouge2': 20.11,
  'rougeL': 29.97,
  'gen_len': 4_000_000,
  'gen_num': 13368,
}


class ScoresTest(absltest.TestCase):
  def entry(self, metrics, reference=None, **changes):
    accuracy = entry_lib.Accuracy(metrics, '', reference, 500, True)
    return jobs.entry(accuracy=accuracy, **changes)

  def test_the_official_set_is_measured_by_the_thresholds(self):
    figures = {}
    entry = self.entry(_OFFICIAL, model='gptj-99.9')
    text = scores.scores(entry, 13368, figures).note
    self.assertIn('reaches 99.9 % of the reference model', text)
    names = [trace['name'] for trace in figures['accuracy']['data']]
    self.assertEqual(names, ['this run', 'threshold 99 %', 'threshold 99.9 %'])
    self.assertEqual(figures['accuracy']['data'][0]['y'][0], 42.97)
    self.assertAlmostEqual(figures['accuracy']['data'][1]['y'][0], 42.556635)

  def test_a_missed_threshold_is_named(self):
    low = _OFFICIAL | {'rouge2': 20.0}
    text = scores.scores(self.entry(low, model='gptj-99.9'), 13368, {}).note
    self.assertIn('misses the target of gptj-99.9 in ROUGE-2', text)
    text = scores.scores(self.entry(low), 13368, {}).note
    self.assertIn('reaches 99 %', text)

  def test_other_sets_are_compared_with_their_reference(self):
    figures = {}
    metrics = {'rouge1': 71.0, 'rouge2': 60.0, 'rougeL': 68.0, 'gen_num': 512}
    text = scores.scores(self.entry(metrics, metrics), 512, figures).note
    self.assertIn('The set has 512 samples.', text)
    self.assertIn('500 answers are identical', text)
    names = [trace['name'] for trace in figures['accuracy']['data']]
    self.assertEqual(names, ['this run', 'recorded reference'])

  def test_other_sets_without_a_reference_have_no_comparison(self):
    figures = {}
    metrics = {'exact_match': 80.5, 'f1': 88.25}
    entry = self.entry(metrics, benchmark='bert', model='bert-99')
    text = scores.scores(entry, None, figures).note
    self.assertIn('was not recorded', text)
    self.assertIn('only to the whole official set of 10,833', text)
    self.assertEqual(figures['accuracy']['data'][0]['y'], [88.25, 80.5])

  def test_unknown_scores_are_left_out(self):
    metrics = _OFFICIAL | {'rougeLsum': None}
    table = scores.scores(self.entry(metrics, metrics), 512, {})
    self.assertNotIn('ROUGE-Lsum', [row[0] for row in table.rows])

  def test_no_accuracy_run(self):
    directory = self.create_tempdir().full_path
    job = run_page.Job(directory, jobs.entry(accuracy=None), {})
    page = reading.Page(run_page.render(job))
    self.assertIn('No accuracy run was made', page.text)
    self.assertNotIn('figures', page.data)


if __name__ == '__main__':
  absltest.main()
