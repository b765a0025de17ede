"""Tests of reading and writing gptj_config.json."""

import os

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.common import errors
from saxml_ext.pax import description


class DescriptionTest(parameterized.TestCase):
  def test_reads_beside_the_checkpoint_or_in_it(self):
    directory = self.create_tempdir()
    directory.create_file(
      'gptj_config.json',
      '{"rotary_dim": 32, "layer_norm_epsilon": 1e-6, "max_positions": 1024,'
      ' "eos_token_id": 7, "dtype": "float32"}',
    )
    expected = description.Description(
      rotary_dim=32,
      ln_epsilon=1e-6,
      max_positions=1024,
      eos_id=7,
      dtype='float32',
    )
    step = os.path.join(directory.full_path, 'checkpoint_00000000')
    for path in (directory.full_path, step, step + '/'):
      self.assertEqual(description.read(path), expected)

  def test_written_description_is_read(self):
    path = self.create_tempdir().full_path
    sizes = ('num_layers', 'model_dim', 'num_heads', 'head_dim', 'hidden_dim')
    written = description.Description(
      rotary_dim=64,
      ln_epsilon=1e-5,
      max_positions=2048,
      eos_id=50256,
      pad_id=50256,
      vocab_size=50401,
      dtype='bfloat16',
      **{name: i + 1 for i, name in enumerate(sizes)},
    )
    description.write(path, written)
    self.assertEqual(description.read(path), written)
    with open(os.path.join(path, 'gptj_config.json'), 'rb') as f:
      data = f.read()
    self.assertEqual(data, written.encode())
    self.assertIn(b'"bos_token_id": null', data)

  def test_missing_file_sets_nothing(self):
    path = self.create_tempdir().full_path
    self.assertEqual(
      description.read(os.path.join(path, 'a')), description.Description()
    )

  def test_null_sets_nothing(self):
    directory = self.create_tempdir()
    directory.create_file('gptj_config.json', '{"eos_token_id": null}')
    self.assertIsNone(description.read(directory.full_path).eos_id)

  @parameterized.parameters(
    ('{', 'cannot be read'),
    ('[1]', 'Expected .object., got .array.'),
    ('{"rotary_dim": "32"}', "rotary_dim is '32'"),
    ('{"eos_token_id": true}', 'eos_token_id is True'),
    ('{"max_positions": 1.5}', 'max_positions is 1.5'),
    ('{"dtype": 32}', r'dtype is 32. Expected .str \| null., got .int.'),
  )
  def test_refuses_malformed_files(self, text, message):
    directory = self.create_tempdir()
    directory.create_file('gptj_config.json', text)
    with self.assertRaisesRegex(errors.InvalidArgument, message):
      description.read(directory.full_path)


if __name__ == '__main__':
  absltest.main()
