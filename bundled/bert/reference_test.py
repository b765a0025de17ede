"""Tests that the recorded answers are those of the bundled model."""

import json

from absl.testing import absltest
import torch

from bundled.bert import reference_model
from harness.benchmarks import bert
from harness.bert import features as features_lib
from harness.bert import span_scoring
from saxml_ext.evaluation import f1

# The number of features, from the start of the set, to compute again.
_COUNT = 150


def setUpModule():
  torch.set_num_threads(1)  # More threads are not faster.


class ReferenceTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    with open(bert.BUNDLE.reference, encoding='utf-8') as file:
      self._recorded = json.load(file)

  def test_recorded_scores_match_the_recorded_answers(self):
    features = features_lib.load(bert.BUNDLE.dataset, bert.BUNDLE.vocabulary)
    scores = f1.score(
      self._recorded['answers'], {q.id: q.answers for q in features.questions}
    )
    self.assertEqual(scores.exact_match, self._recorded['exact_match'])
    self.assertEqual(scores.f1, self._recorded['f1'])
    self.assertLen(features, self._recorded['features'])

  def test_model_gives_the_recorded_answers(self):
    features = features_lib.load(
      bert.BUNDLE.dataset, bert.BUNDLE.vocabulary, _COUNT
    )
    model = reference_model.load(bert.BUNDLE.model)
    answers = span_scoring.answers(
      features, reference_model.logits(model, features, 'reference')
    )
    # The last question may have windows that were not computed.
    answers.pop(features.questions[-1].id)
    for question, answer in answers.items():
      self.assertEqual(answer, self._recorded['answers'][question], question)


if __name__ == '__main__':
  absltest.main()
