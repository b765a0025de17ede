from absl.testing import absltest
from absl.testing import parameterized

from serve import other_flags


class OtherFlagsTest(parameterized.TestCase):
  @parameterized.parameters(
    ('--a-limit=3-4', '--a_limit=3-4'),
    ('--a_limit', '--a_limit'),
    ('-c', '--c'),
    ('--no-color', '--no_color'),
    ('some-model', 'some-model'),
    ('-3', '-3'),
    ('KEY=--a-b', 'KEY=--a-b'),
  )
  def test_dashes_in_flag_names_are_accepted(self, word, expected):
    self.assertEqual(
      other_flags.underscored(['serve', word, '7-8']),
      ['serve', expected, '7-8'],
    )

  def test_words_after_two_dashes_are_kept(self):
    words = ['serve', '--', '--a-limit=3']
    self.assertEqual(other_flags.underscored(words), words)

  @parameterized.parameters(
    ('model', 'Name the model without a flag'),
    ('m', 'serve FILE.gguf'),
    ('dtype', '--quantize=int8'),
    ('gpu_memory_utilization', 'BATCH_SIZE=N'),
    ('tensor_parallel_size', 'ICI_MESH_SHAPE'),
    ('c', '--max_model_len=N'),
    ('max_num_seqs', 'BATCH_SIZE'),
    ('api_key', '--api_keys_file'),
    ('trust_remote_code', 'never run'),
    ('ngl', 'JAX_PLATFORMS'),
    ('enforce_eager', 'Omit it'),
  )
  def test_usual_flags_of_other_servers_have_a_hint(self, name, text):
    self.assertIn(text, other_flags.HINTS[name])
    self.assertNotEndsWith(other_flags.HINTS[name], '.')


if __name__ == '__main__':
  absltest.main()
