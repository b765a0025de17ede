from unittest import mock

from absl.testing import absltest
import psutil

from benchmarks import contenders
from benchmarks import models
from benchmarks import room

_GPTJ_6B = models.Sizes(28, 4096, 4 * 4096, 50400)


class RoomTest(absltest.TestCase):
  def test_bytes_of_gptj_6b(self):
    # The model has 6.05 billion parameters, without norms and biases.
    parameters = 28 * 12 * 4096**2 + 2 * 50400 * 4096
    for name, times in (
      ('ours_int8', 1),
      ('ct2_int8', 1),
      ('ours_bfloat16', 2),
      ('transformers_float32', 4),
      ('ct2_float32', 8),
      ('openvino_int8', 5),
    ):
      (contender,) = contenders.choose([name])
      self.assertEqual(
        room.weight_bytes(contender, _GPTJ_6B), times * parameters, name
      )

  def test_bytes_of_llama_1b(self):
    sizes = models.Sizes(16, 2048, 8192, 128256, 512, gated=True, tied=True)
    # The model has 1.236 billion parameters.
    layers = 16 * (2 * 2048**2 + 2 * 2048 * 512 + 3 * 2048 * 8192)
    head = 2048 * 128256
    for name, size in (
      ('ours_int8', layers + 2 * head),
      ('ct2_int8', layers + head),
      ('llama_cpp_q8_0', (layers + head) * 34 // 32),
    ):
      (contender,) = contenders.choose([name])
      self.assertEqual(room.weight_bytes(contender, sizes), size, name)

  def test_too_large_model_is_refused(self):
    small, large = contenders.choose(['ours_int8', 'transformers_float32'])
    memory = mock.Mock(available=20_000_000_000, total=24_000_000_000)
    with mock.patch.object(psutil, 'virtual_memory', return_value=memory):
      self.assertIsNone(room.shortage(small, _GPTJ_6B))
      self.assertRegex(
        room.shortage(large, _GPTJ_6B) or '',
        r'^transformers_float32: .* 24\.2 GB, but only 17\.6 GB .*--engines\.$',
      )


if __name__ == '__main__':
  absltest.main()
