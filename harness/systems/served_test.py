from absl.testing import absltest
from absl.testing import parameterized

from harness.systems import served
from harness.systems import target
from saxml_ext.client import sax
from saxml_ext.client.testing import fake_cell


class ServedTest(parameterized.TestCase):
  @parameterized.parameters(
    ('saxml_ext.params.gptj.TinyTokenizedFP32', {}, True),
    ('saxml_ext.params.gptj.TinyTokenizedFP32', {'BATCH_SIZE': '8'}, True),
    ('a.TinyTokenizedFP32', {'QUANTIZATION': '"int8"'}, False),
    ('a.TinyTokenizedFP32', {'KV_CACHE_DTYPE': '"bfloat16"'}, False),
    ('saxml_ext.params.gptj.TinyTokenizedINT8', {}, False),
    # The last part of the name alone counts.
    ('FP32.params.GPTJ4TokenizedBF16BS32', {}, False),
  )
  def test_float32(self, params, overrides, expected):
    cell = fake_cell.FakeCell(self.create_tempdir().full_path)
    self.addCleanup(cell.stop)
    found = target.Target('/sax/test/n', cell.root)
    sax.SetRoot(cell.root)
    sax.Publish(found.model_id, params, '/ckpt', 1, overrides)
    sax.SetRoot('/nowhere')
    said = served.ask(found)
    self.assertEqual(said, served.Served(params, overrides))
    self.assertEqual(said.is_float32, expected)

  def test_hosts_of_groups(self):
    cell = fake_cell.FakeCell(self.create_tempdir().full_path)
    self.addCleanup(cell.stop)
    found = target.Target('/sax/test/n', cell.root)
    sax.SetRoot(cell.root)
    sax.Publish(found.model_id, 'a.P', '/ckpt', 2)
    replicas = cell.admin.models[found.model_id].replicas
    replicas.add(address='a:1', hosts=['a', 'b'])
    replicas.add(address='c:1')
    self.assertEqual(served.ask(found).groups, (('a', 'b'),))


if __name__ == '__main__':
  absltest.main()
