import os

from absl.testing import absltest
import numpy as np
import torch

from harness.bert import answering
from harness.bert import features
from harness.bert import graph
from harness.bert import loadgen_onnxruntime
from harness.bert import loadgen_pytorch
from harness.bert import span_scoring
from harness.bert.testing import tiny_model
from harness.bert.testing import tiny_run
from harness.bert.testing import tiny_set
from harness.rules import rounds


class LoadgenPytorchTest(absltest.TestCase):
  def test_accuracy(self):
    directory = self.create_tempdir().full_path
    done = tiny_run.run(
      'harness.bert.loadgen_pytorch',
      directory,
      rounds.OFFLINE,
      'accuracy',
      '--max_examples=4',
    )
    self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
    questions = features.load(
      os.path.join(directory, 'squad.json'),
      os.path.join(directory, 'vocab.txt'),
      4,
    )
    log = os.path.join(directory, 'logs', 'mlperf_log_accuracy.json')
    scored = span_scoring.score_log(log, questions)
    self.assertCountEqual(scored.logits, range(4))
    self.assertCountEqual(scored.answers, ['q0'])


class TorchModelTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._dir = self.create_tempdir().full_path
    self._model = tiny_model.write(self._dir)
    self._features = features.load(
      tiny_set.write_questions(self._dir, sentences=100),
      tiny_set.write_vocab(self._dir),
    )

  def _answers(self, model: answering.Model) -> list[np.ndarray]:
    answers = answering.answer(model, self._features, range(5))
    return [answer.data for answer in answers]

  def test_onnx_runtime_gives_the_same_logits(self):
    exact = self._answers(
      loadgen_pytorch.load(self._model, 'float32', 'cpu', 1)
    )
    self.assertEqual([len(a) for a in exact], self._features.lengths.tolist())
    other = loadgen_onnxruntime.load(self._model, graph.FLOAT32, 'cpu', 1)
    for one, same in zip(exact, self._answers(other)):
      np.testing.assert_allclose(one, same, atol=2e-5)

  def test_bfloat16_is_close(self):
    exact = self._answers(
      loadgen_pytorch.load(self._model, 'float32', 'cpu', 1)
    )
    short = self._answers(
      loadgen_pytorch.load(self._model, 'bfloat16', 'cpu', 1)
    )
    for one, other in zip(exact, short):
      self.assertEqual(other.dtype, np.float32)
      np.testing.assert_allclose(one, other, atol=0.1)

  def test_no_model(self):
    with self.assertRaisesRegex(FileNotFoundError, 'has no config.json'):
      loadgen_pytorch.load('/nowhere', 'float32', 'cpu', 1)

  def test_a_file_of_something_else(self):
    path = os.path.join(self._dir, 'model.pytorch')
    torch.save({'weight': torch.zeros(1)}, path)
    with self.assertRaisesRegex(ValueError, 'lacks bert.embeddings'):
      loadgen_pytorch.load(path, 'float32', 'cpu', 1)

  def test_no_cuda(self):
    if torch.cuda.is_available():
      self.skipTest('there is a CUDA device')
    with self.assertRaisesRegex(ValueError, 'no CUDA device. .*--device=cpu'):
      loadgen_pytorch.load(self._model, 'float32', 'cuda', 1)


if __name__ == '__main__':
  absltest.main()
