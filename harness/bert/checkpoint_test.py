import json
import os

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
from safetensors import numpy

from harness.bert import checkpoint
from harness.bert.testing import tiny_model


class CheckpointTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self._dir = self.create_tempdir().full_path

  def test_a_directory_comes_back(self):
    path = tiny_model.write(self._dir)
    made, again = tiny_model.make(), checkpoint.load(path)
    self.assertEqual(again.config, made.config)
    self.assertEqual(set(again.tensors), set(made.tensors))
    for name, tensor in made.tensors.items():
      np.testing.assert_array_equal(again.tensors[name], tensor)

  def test_bfloat16_becomes_float32(self):
    path = tiny_model.write(self._dir)
    made = tiny_model.make()
    short = {k: t.astype('bfloat16') for k, t in made.tensors.items()}
    numpy.save_file(short, os.path.join(path, 'model.safetensors'))
    again = checkpoint.load(path)
    for name, tensor in short.items():
      self.assertEqual(again.tensors[name].dtype, np.float32)
      np.testing.assert_array_equal(again.tensors[name], tensor.astype('f4'))

  def test_bert_large(self):
    sizes = [
      np.prod(s) for s in checkpoint.shapes(checkpoint.Config()).values()
    ]
    # BertForQuestionAnswering of bert-large-uncased also has 334 million
    # weights.
    self.assertEqual(sum(sizes), 334_094_338)

  def test_no_model(self):
    with self.assertRaisesRegex(FileNotFoundError, 'has no config.json'):
      checkpoint.load('/nowhere')

  def test_no_weights(self):
    path = tiny_model.write(self._dir)
    os.remove(os.path.join(path, 'model.safetensors'))
    with self.assertRaisesRegex(FileNotFoundError, 'save_pretrained'):
      checkpoint.load(path)

  def test_damaged_weights(self):
    path = tiny_model.write(self._dir)
    with open(os.path.join(path, 'model.safetensors'), 'r+b') as file:
      file.truncate(1000)
    with self.assertRaisesRegex(ValueError, 'not a safetensors file'):
      checkpoint.load(path)

  @parameterized.parameters(
    ('hidden_act', 'relu', 'only "gelu"'),
    ('hidden_size', 48, r'is \(\d+, 32\), but must be \(\d+, 48\)'),
    ('num_hidden_layers', 3, 'layer.2.* is missing, but must be'),
  )
  def test_another_model(self, field, value, message):
    path = tiny_model.write(self._dir)
    config = os.path.join(path, 'config.json')
    with open(config, encoding='utf-8') as file:
      record = json.load(file)
    with open(config, 'w', encoding='utf-8') as file:
      json.dump(record | {field: value}, file)
    with self.assertRaisesRegex(ValueError, message):
      checkpoint.load(path)


if __name__ == '__main__':
  absltest.main()
