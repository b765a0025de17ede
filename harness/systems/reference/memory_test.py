from absl.testing import absltest
import torch
import transformers

from harness.data import bundle
from harness.systems.reference import gptj
from harness.systems.reference import memory

_CPU = torch.device('cpu')


class MemoryTest(absltest.TestCase):
  def test_weights_are_those_of_the_model(self):
    model = gptj.load(bundle.model_dir(), dtype=torch.bfloat16)
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    config = gptj.read_config(bundle.model_dir())
    self.assertEqual(memory.weights_bytes(config, torch.bfloat16), size)

  def test_cache_is_that_of_the_model(self):
    model = gptj.load(bundle.model_dir())
    with torch.inference_mode():
      cache = model(torch.zeros((3, 7), dtype=torch.long)).past_key_values
    size = sum(
      each.nbytes
      for layer in cache.layers
      for each in (layer.keys, layer.values)
    )
    found = memory.cache_bytes(model.config, torch.float32, 3, 7)
    self.assertEqual(found, size)

  def test_gptj_6b_has_six_billion_weights(self):
    config = transformers.GPTJConfig()
    billions = memory.weights_bytes(config, torch.bfloat16) / 2e9
    self.assertAlmostEqual(billions, 6.05, places=2)

  def test_what_does_not_fit_is_refused(self):
    memory.check({'weights': 1}, _CPU)
    with self.assertRaisesRegex(
      memory.TooLarge,
      r'needs 1048577\.0 GiB of memory on cpu \(weights 1048576\.0 GiB and'
      r' cache 1\.0 GiB\), and [0-9.]+ GiB are free.*--precision=bfloat16',
    ):
      memory.check({'weights': 2**50, 'cache': 2**30}, _CPU)


if __name__ == '__main__':
  absltest.main()
