from absl.testing import absltest
from absl.testing import parameterized

from harness.benchmarks import gptj
from harness.benchmarks import llama
from harness.systems import served
from saxml_ext.client import sax
from saxml_ext.client.testing import fake_cell
from saxml_ext.common import errors

_PUBLISHED = (
  'saxml.server.pax.lm.params.gptj.GPTJ4TokenizedINT8BS32XLAWait40MB6'
)


class ServedTest(parameterized.TestCase):
  def test_streams(self):
    name = 'ENABLE_GENERATE_STREAM'
    for params, overrides, expected in (
      ('saxml_ext.params.llama.TinyTokenizedFP32', {}, False),
      ('saxml_ext.params.llama.TinyTokenizedFP32', {name: 'true'}, True),
      ('a.stock.server.knows.It', {}, None),
    ):
      self.assertIs(served.Served(params, overrides).streams, expected)

  @parameterized.parameters(
    ('saxml_ext.params.gptj.TinyTokenizedFP32', {}, True),
    ('saxml_ext.params.gptj.TinyTokenizedFP32', {'BATCH_SIZE': '8'}, True),
    ('a.TinyTokenizedFP32', {'QUANTIZATION': '"int8"'}, False),
    ('a.TinyTokenizedFP32', {'KV_CACHE_DTYPE': '"bfloat16"'}, False),
    # The settings decide, not the name.
    ('a.TinyTokenizedFP32', {}, False),
    (
      'saxml_ext.params.gptj.TinyTokenizedFP32',
      {'QUANTIZATION': 'int8'},
      False,
    ),
    (
      'saxml_ext.params.gptj.TinyTokenizedFP32',
      {'KV_CACHE_DTYPE': '"float32"', 'QUANTIZE_SOFTMAX': 'true'},
      True,
    ),
    (
      'saxml_ext.params.gptj.TinyTokenizedINT8',
      {'QUANTIZATION': '"none"'},
      True,
    ),
    ('saxml_ext.params.gptj.TinyTokenizedINT8', {}, False),
    ('FP32.params.GPTJ4TokenizedBF16BS32', {}, False),
  )
  def test_float32(self, params, overrides, expected):
    cell = fake_cell.FakeCell(self.create_tempdir().full_path)
    self.addCleanup(cell.stop)
    model_id = '/sax/test/n'
    sax.SetRoot(cell.root)
    sax.Publish(model_id, params, '/ckpt', 1, overrides)
    sax.SetRoot('/nowhere')
    report = served.ask(model_id, cell.root)
    self.assertEqual(
      report, served.Served(params, overrides, checkpoint='/ckpt')
    )
    self.assertEqual(report.is_float32, expected)

  @parameterized.parameters(
    ('saxml_ext.params.gptj.TinyTokenizedFP32', {}, 32, 512, ''),
    (f'{_PUBLISHED}Server', {}, 36, 1919, ''),
    (f'{_PUBLISHED}Offline', {'BATCH_SIZE': '[8, 48]'}, 48, 1919, ''),
    ('saxml_ext.params.gptj.GPTJTokenizedINT8V5E2x2', {}, 96, 1919, ''),
    ('a.stock.server.knows.It', {}, 0, None, ''),
    ('a.stock.server.knows.It', {'BATCH_SIZE': 'x'}, 0, None, ''),
    (
      'saxml_ext.params.gptj.TinyTokenizedFP32',
      {'BEAM_SIZE': '1', 'NUM_CACHE_SLOTS': '7', 'MAX_DECODE_STEPS': '[9]'},
      7,
      512,
      'BEAM_SIZE=1 (reference: 4), MAX_DECODE_STEPS=9 (reference: 128)',
    ),
    (
      'saxml_ext.params.gptj.TinyTokenizedFP32',
      {'USE_BEAM_SEARCH': 'false'},
      32,
      512,
      'USE_BEAM_SEARCH=False (reference: True)',
    ),
  )
  def test_params_decide_slots_and_lengths(
    self, params, overrides, slots, longest, other
  ):
    model = served.Served(params, overrides)
    self.assertEqual(model.slots, slots)
    self.assertEqual(model.max_input_length, longest)
    self.assertEqual(model.other_search(gptj.GPTJ.search), other)
    self.assertEqual(
      served.Served(params, overrides, replicas=3).slots, 3 * slots
    )

  def test_llama_searches_greedily(self):
    params = 'saxml_ext.params.llama.TinyTokenizedFP32'
    model = served.Served(params, {})
    self.assertEqual(model.other_search(llama.LLAMA.search), '')
    self.assertEqual(
      model.other_search(gptj.GPTJ.search),
      'USE_BEAM_SEARCH=False (reference: True),'
      ' MIN_DECODE_STEPS=1 (reference: 30)',
    )
    warm = served.Served(params, {'TEMPERATURE': '0.5', 'NUM_SAMPLES': '2'})
    self.assertEqual(
      warm.other_search(llama.LLAMA.search),
      'NUM_SAMPLES=2 (reference: 1), TEMPERATURE=0.5 (reference: 0.0)',
    )

  def test_an_unknown_model_is_named(self):
    cell = fake_cell.FakeCell(self.create_tempdir().full_path)
    self.addCleanup(cell.stop)
    with self.assertRaisesRegex(
      errors.NotFound, 'no model /sax/test/nomodel is published in .*saxutil ls'
    ):
      served.ask('/sax/test/nomodel', cell.root)

  def test_hosts_of_groups(self):
    cell = fake_cell.FakeCell(self.create_tempdir().full_path)
    self.addCleanup(cell.stop)
    model_id = '/sax/test/n'
    sax.SetRoot(cell.root)
    sax.Publish(model_id, 'a.P', '/ckpt', 2)
    replicas = cell.admin.models[model_id].replicas
    replicas.add(address='a:1', hosts=['a', 'b'])
    replicas.add(address='c:1')
    self.assertEqual(served.ask(model_id, cell.root).groups, (('a', 'b'),))


if __name__ == '__main__':
  absltest.main()
