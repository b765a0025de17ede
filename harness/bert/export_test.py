import os
import subprocess

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from harness.bert import answering
from harness.bert import features
from harness.bert import graph
from harness.bert import loadgen_onnxruntime
from harness.bert.testing import tiny_model
from harness.bert.testing import tiny_set
from saxml_ext.common.testing import modules


def _run(*flags: str) -> subprocess.CompletedProcess:
  return modules.run('harness.bert.export', *flags)


class ExportTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self._dir = self.create_tempdir().full_path

  @parameterized.parameters(*graph.PRECISIONS)
  def test_a_file_answers_as_the_checkpoint_does(self, precision):
    questions = features.load(
      tiny_set.write_questions(self._dir), tiny_set.write_vocab(self._dir)
    )
    path = os.path.join(self._dir, 'new', 'bert.onnx')
    graph.write(tiny_model.make(), precision, path)
    self.assertEqual(os.listdir(os.path.dirname(path)), ['bert.onnx'])
    (one,), (other,) = (
      answering.answer(
        loadgen_onnxruntime.load(model, kind, 'cpu', 1), questions, [0]
      )
      for model, kind in (
        (path, None),
        (tiny_model.write(self._dir), precision),
      )
    )
    np.testing.assert_array_equal(one.data, other.data)

  def test_the_program(self):
    path = os.path.join(self._dir, 'bert.onnx')
    model = tiny_model.write(self._dir)
    done = _run(
      f'--model={model}',
      '--precision=int8',
      '--float32_layers=output.dense',
      f'--output={path}',
    )
    self.assertEqual(done.returncode, 0, done.stderr)
    self.assertTrue(os.path.isfile(path))

  @parameterized.parameters(
    (('--output=x.onnx',), 'export: pass either --model or --random_large'),
    (
      ('--output=x.onnx', '--model=/nowhere'),
      'export: /nowhere has no config.json',
    ),
    (('--output=x', '--model=/nowhere'), 'does not end in .onnx'),
    (('--output=x', '--float32_layers=x', '--random_large'), 'int8'),
  )
  def test_unusable_input_is_reported(self, inputs, message):
    done = _run(*inputs)
    self.assertEqual(done.returncode, 1)
    self.assertIn(message, done.stderr)
    self.assertNotIn('Traceback', done.stderr)


if __name__ == '__main__':
  absltest.main()
