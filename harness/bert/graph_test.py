import os

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import onnx

from harness.bert import answering
from harness.bert import checkpoint
from harness.bert import features
from harness.bert import graph
from harness.bert import loadgen_onnxruntime
from harness.bert.testing import tiny_model
from harness.bert.testing import tiny_set


class GraphTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self._path = os.path.join(self.create_tempdir().full_path, 'bert.onnx')
    directory = os.path.dirname(self._path)
    self._features = features.load(
      tiny_set.write_questions(directory, sentences=100),
      tiny_set.write_vocab(directory),
    )

  def _answer(
    self, made: checkpoint.Checkpoint, precision: str, float32_layers: str = ''
  ) -> np.ndarray:
    graph.write(made, precision, self._path, float32_layers)
    model = loadgen_onnxruntime.load(self._path, None, 'cpu', 1)
    (answer,) = answering.answer(model, self._features, [0])
    return answer.data

  @parameterized.parameters(*graph.PRECISIONS)
  def test_graphs_are_well_formed(self, precision):
    built = graph.build(tiny_model.make(), precision)
    onnx.checker.check_model(built)
    names = [value.name for value in built.graph.output]
    self.assertEqual(names, ['start_logits', 'end_logits'])
    foreign = {node.op_type for node in built.graph.node if node.domain}
    self.assertEqual(bool(foreign), precision == graph.INT8)

  def test_layers_in_float32_bear_large_activations(self):
    made = tiny_model.make()
    tensors = dict(made.tensors)
    # One of the 64 inner activations of a layer is much too large, and its
    # weights are 0.
    for layer in range(2):
      name = f'bert.encoder.layer.{layer}.intermediate.dense.bias'
      tensors[name] = tensors[name].copy()
      tensors[name][5] = 100
      name = f'bert.encoder.layer.{layer}.output.dense.weight'
      tensors[name] = tensors[name].copy()
      tensors[name][:, 5] = 0
    spoilt = checkpoint.Checkpoint(made.config, tensors)
    exact = self._answer(spoilt, graph.FLOAT32)
    whole = self._answer(spoilt, graph.INT8)
    mixed = self._answer(spoilt, graph.INT8, r'\d\.output\.dense')
    self.assertLess(
      np.abs(mixed - exact).mean(), np.abs(whole - exact).mean() / 5
    )

  def test_all_layers_in_float32_are_exact(self):
    made = tiny_model.make()
    np.testing.assert_allclose(
      self._answer(made, graph.INT8, 'dense|self'),
      self._answer(made, graph.FLOAT32),
      atol=1e-5,
    )

  @parameterized.parameters(
    ('output.danse', 'No linear layer matches'),
    ('(', 'is not a regular expression'),
  )
  def test_unknown_layers(self, layers, message):
    with self.assertRaisesRegex(ValueError, message):
      graph.build(tiny_model.make(), graph.INT8, layers)


if __name__ == '__main__':
  absltest.main()
