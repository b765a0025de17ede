from absl.testing import absltest
from absl.testing import parameterized

from serve import other_flags


class OtherFlagsTest(parameterized.TestCase):
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
