import os

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import onnx

from harness.benchmarks import bert
from harness.bert import answering
from harness.bert import features
from harness.bert import graph
from harness.bert import loadgen_onnxruntime
from harness.bert import span_scoring
from harness.bert.testing import tiny_model
from harness.bert.testing import tiny_run
from harness.bert.testing import tiny_set
from harness.loadgen import loadgen_log
from harness.rules import rounds

_MODULE = 'harness.bert.loadgen_onnxruntime'


class LoadgenOnnxruntimeTest(parameterized.TestCase):
  @parameterized.parameters(*bert.BERT.scenarios)
  def test_performance(self, scenario):
    directory = self.create_tempdir().full_path
    done = tiny_run.run(_MODULE, directory, scenario, 'performance')
    self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
    path = os.path.join(directory, 'logs', 'mlperf_log_summary.txt')
    with open(path, encoding='utf-8') as file:
      summary = file.read()
    self.assertIn(f'Scenario : {scenario}', summary)
    self.assertIn('No errors encountered during test.', summary)
    times = loadgen_log.read_timeline(os.path.join(directory, 'timeline.csv'))
    self.assertGreaterEqual(len(times), 10)

  def test_accuracy_in_int8(self):
    directory = self.create_tempdir().full_path
    done = tiny_run.run(
      _MODULE, directory, rounds.OFFLINE, 'accuracy', '--precision=int8'
    )
    self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
    questions = features.load(
      os.path.join(directory, 'squad.json'),
      os.path.join(directory, 'vocab.txt'),
    )
    log = os.path.join(directory, 'logs', 'mlperf_log_accuracy.json')
    scored = span_scoring.score_log(log, questions)
    self.assertCountEqual(scored.logits, range(5))
    self.assertCountEqual(scored.answers, ['q0', 'q1'])

  def test_unusable_input_is_reported(self):
    directory = self.create_tempdir().full_path
    done = tiny_run.run(
      _MODULE,
      directory,
      rounds.OFFLINE,
      'accuracy',
      '--val_data=/nowhere/dev-v1.1.json',
    )
    self.assertEqual(done.returncode, 1)
    self.assertRegex(done.stdout, 'failure.*/nowhere.* does not exist.*curl')
    self.assertNotIn('Traceback', done.stderr)


class OnnxRuntimeModelTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self._dir = self.create_tempdir().full_path
    self._model = tiny_model.write(self._dir)
    self._features = features.load(
      tiny_set.write_questions(self._dir, sentences=100),
      tiny_set.write_vocab(self._dir),
    )

  def _load(self, precision: str | None = None, path: str | None = None):
    return loadgen_onnxruntime.load(path or self._model, precision, 'cpu', 1)

  def _answers(self, model, *indices: int) -> list[np.ndarray]:
    answers = answering.answer(model, self._features, indices)
    return [answer.data for answer in answers]

  @parameterized.parameters((graph.FLOAT16, 0.01), (graph.INT8, 0.15))
  def test_lower_precision_is_close(self, precision, tolerance):
    exact = self._answers(self._load(), 0, 3, 4)
    for one, other in zip(exact, self._answers(self._load(precision), 0, 3, 4)):
      np.testing.assert_allclose(one, other, atol=tolerance)
      # The standard deviation of the exact logits is about 0.5.
      self.assertGreater(np.corrcoef(one.ravel(), other.ravel())[0, 1], 0.98)

  @parameterized.parameters(graph.FLOAT32, graph.INT8)
  def test_padding_changes_nothing(self, precision):
    model = self._load(precision)
    (alone,) = self._answers(model, 4)
    _, padded = self._answers(model, 3, 4)
    self.assertEqual(alone.shape, (12, 2))
    self.assertEqual(alone.dtype, np.float32)
    # In int8, padding changes the result, because a batch has one scale.
    tolerance = 0.15 if precision == graph.INT8 else 1e-5
    np.testing.assert_allclose(alone, padded, atol=tolerance)

  def _save(self, rename: dict[str, str], shape=(None, None)) -> str:
    """Saves the model as another exporter might do; returns the path."""
    made = graph.build(tiny_model.make(), graph.FLOAT32)
    for node in made.graph.node:
      node.input[:] = [rename.get(name, name) for name in node.input]
      node.output[:] = [rename.get(name, name) for name in node.output]
    for value in [*made.graph.input, *made.graph.output]:
      value.name = rename.get(value.name, value.name)
    for value in made.graph.input:
      for dim, size in zip(value.type.tensor_type.shape.dim, shape):
        if size:
          dim.dim_value = size
    path = os.path.join(self._dir, 'model.onnx')
    onnx.save_model(made, path)
    return path

  def test_a_file_with_the_names_of_the_reference_and_fixed_sizes(self):
    names = {
      'attention_mask': 'input_mask',
      'token_type_ids': 'segment_ids',
      'start_logits': 'output_start_logits',
      'end_logits': 'output_end_logits',
    }
    model = self._load(path=self._save(names, (1, 384)))
    self.assertEqual((model.fixed_batch, model.fixed_length), (1, 384))
    (fixed,), (free,) = self._answers(model, 4), self._answers(self._load(), 4)
    np.testing.assert_allclose(fixed, free, atol=1e-5)
    with self.assertRaisesRegex(ValueError, 'not --batch_size=2. Set --batch'):
      answering.make_system(model, self._features, 2)

  def test_another_graph(self):
    path = self._save({'attention_mask': 'pixels'})
    with self.assertRaisesRegex(ValueError, 'takes input_ids, pixels, '):
      self._load(path=path)

  def test_a_graph_keeps_its_precision(self):
    with self.assertRaisesRegex(ValueError, 'is already a graph'):
      self._load(graph.INT8, self._save({}))

  def test_a_damaged_file(self):
    path = self._save({})
    with open(path, 'r+b') as file:
      file.truncate(1000)
    with self.assertRaisesRegex(ValueError, 'ONNX Runtime cannot load'):
      self._load(path=path)

  def test_no_file(self):
    with self.assertRaisesRegex(FileNotFoundError, '//harness/bert:export'):
      self._load(path='/nowhere.onnx')

  def test_providers(self):
    both = ['CUDAExecutionProvider', 'CPUExecutionProvider']
    self.assertEqual(loadgen_onnxruntime.providers_for('cuda', both), both)
    self.assertEqual(loadgen_onnxruntime.providers_for('cpu', both), both[1:])
    with self.assertRaisesRegex(ValueError, 'Install onnxruntime-gpu .*=cpu'):
      loadgen_onnxruntime.providers_for('cuda', both[1:])

  def test_int8_is_for_the_cpu(self):
    with self.assertRaisesRegex(ValueError, 'float16|onnxruntime-gpu'):
      loadgen_onnxruntime.load(self._model, graph.INT8, 'cuda', 1)


if __name__ == '__main__':
  absltest.main()
