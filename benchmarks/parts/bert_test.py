import os

from absl.testing import absltest

from benchmarks.parts import bert
from harness.bert import features
from harness.bert import graph
from harness.bert.testing import tiny_model
from harness.bert.testing import tiny_set
from saxml_ext.common.testing import modules


class BenchTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    directory = self.create_tempdir().full_path
    self._model = tiny_model.write(directory)
    self._questions = tiny_set.write_questions(directory, sentences=100)
    self._vocab = tiny_set.write_vocab(directory)

  def test_all_ways_answer_all_samples(self):
    samples = features.load(self._questions, self._vocab)
    trials = [
      bert.Trial(way, way.load(self._model, 'cpu', 1))
      for way in bert.WAYS.values()
    ]
    bert.compare(trials, samples, 2)
    for trial in trials:
      self.assertCountEqual(trial.logits, range(5))
      self.assertGreater(trial.seconds, 0)
    heading, first, *lines = bert.table(trials, samples).splitlines()
    self.assertEqual(heading.split(), ['samples/s', 'ratio', 'F1', 'kept'])
    self.assertRegex(first, r'^ONNX Runtime float32, plain +[\d.]+ +1\.00 ')
    self.assertLen(lines, len(trials))
    self.assertIn('5 samples of 297 tokens', lines[-1])

  def test_f1_is_missing_without_right_answers(self):
    with open(self._questions, encoding='utf-8') as file:
      text = file.read()
    with open(self._questions, 'w', encoding='utf-8') as file:
      file.write(text.replace('"answers"', '"other"'))
    samples = features.load(self._questions, self._vocab)
    way = bert.WAYS['float32']
    trial = bert.Trial(way, way.load(self._model, 'cpu', 1))
    bert.compare([trial], samples, 8)
    self.assertRegex(bert.table([trial], samples), '1.00   -     -\n')

  def test_program_measures_a_file(self):
    path = os.path.join(self.create_tempdir().full_path, 'bert.onnx')
    graph.write(tiny_model.make(), 'int8', path)
    done = modules.run(
      'benchmarks.parts.bert',
      f'--model={self._model}',
      f'--val_data={self._questions}',
      f'--vocab_file={self._vocab}',
      f'--ways=plain,{path}',
      '--threads=1',
    )
    self.assertEqual(done.returncode, 0, done.stderr)
    self.assertRegex(done.stdout, r'\nbert\.onnx +\d')


if __name__ == '__main__':
  absltest.main()
