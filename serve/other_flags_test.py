from absl import flags
from absl.testing import absltest
from absl.testing import parameterized

from serve import other_flags

flags.DEFINE_integer('a_limit', 0, 'A flag of this test.')
flags.DEFINE_bool('a_switch', False, 'A flag of this test.')


class OtherFlagsTest(parameterized.TestCase):
  @parameterized.parameters(
    ('--a-limit=3', '--a_limit=3'),
    ('--a_limit', '--a_limit'),
    ('-a-limit', '--a_limit'),
    ('--noa-switch', '--noa_switch'),
    ('--what-is-it=a-b', '--what-is-it=a-b'),
    ('some-model', 'some-model'),
  )
  def test_dashes_in_names_are_accepted(self, word, expected):
    self.assertEqual(
      other_flags.translated(['serve', word, '7']), ['serve', expected, '7']
    )

  def test_words_after_two_dashes_are_kept(self):
    words = ['serve', '--', '--a-limit=3']
    self.assertEqual(other_flags.translated(words), words)

  @parameterized.parameters(
    (['--model', 'a/b'], '--model is no flag of serve. Name the model without'),
    (['-m', 'FILE.gguf'], '-m is no flag .* serve FILE.gguf'),
    (['--dtype=half'], '--dtype is .*--quantize=int8'),
    (['--gpu-memory-utilization=0.9'], 'BATCH_SIZE=N'),
    (['--tensor-parallel-size', '2'], 'ICI_MESH_SHAPE'),
    (['-c', '4096'], '-c is no flag of serve. Set --max_model_len=N'),
    (['--ctx-size=0'], '--max_model_len'),
    (['--max-num-seqs', '8'], 'BATCH_SIZE'),
    (['--api-key=secret'], '--api_keys_file'),
    (['--trust-remote-code'], 'never run'),
    (['-ngl', '99'], 'JAX_PLATFORMS'),
    (['--enforce-eager'], 'Omit it'),
  )
  def test_flags_of_other_servers_get_a_hint(self, words, message):
    with self.assertRaisesRegex(SystemExit, message) as raised:
      other_flags.translated(['serve', *words])
    self.assertNotIn('secret', str(raised.exception))

  def test_programs_may_have_no_hints(self):
    words = ['ask', '--temp=1']
    self.assertEqual(other_flags.translated(words, {}), words)


if __name__ == '__main__':
  absltest.main()
