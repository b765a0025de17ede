"""Tests the bundled questions."""

import json

from absl.testing import absltest

from bundled.bert import evaluation
from harness.benchmarks import bert
from harness.bert import features as features_lib


class EvaluationTest(absltest.TestCase):
  def test_bundled_file_matches_the_generator(self):
    with open(bert.BUNDLE.dataset, encoding='utf-8') as file:
      self.assertEqual(json.load(file), evaluation.squad())

  def test_schema(self):
    content = evaluation.squad(20)
    self.assertEqual(content['version'], '1.1')
    self.assertLen(content['data'], 20)
    ids = set()
    for article in content['data']:
      self.assertNotEmpty(article['title'])
      self.assertLen(article['paragraphs'], 2)
      for paragraph in article['paragraphs']:
        for entry in paragraph['qas']:
          ids.add(entry['id'])
          for answer in entry['answers']:
            start = answer['answer_start']
            end = start + len(answer['text'])
            self.assertEqual(paragraph['context'][start:end], answer['text'])
    self.assertLen(ids, 20 * 2 * 4)

  def test_features(self):
    features = features_lib.load(bert.BUNDLE.dataset, bert.BUNDLE.vocabulary)
    self.assertLen(features.questions, 1200)
    self.assertGreater(len(features), 1200)
    self.assertGreater(sum(features.lengths == 384), 100)
    self.assertLess(features.lengths.min(), 100)
    with open(bert.BUNDLE.vocabulary, encoding='utf-8') as file:
      unknown = file.read().split('\n').index('[UNK]')
    self.assertNotIn(unknown, features.input_ids)


if __name__ == '__main__':
  absltest.main()
