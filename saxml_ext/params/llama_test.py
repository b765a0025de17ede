"""Tests that the attributes of Llama's params equal those of upstream."""

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.common import errors
from saxml_ext.engine import architecture
from saxml_ext.families import llama
from saxml_ext.families import llama_sizes
from saxml_ext.params import all_params  # noqa: F401 Registers them.
from saxml_ext.params import overrides
from saxml_ext.params import registry
from saxml_ext.params import settings as settings_lib
from saxml_ext.params import template
from saxml_ext.params.testing import upstream_facts

_MODULE = 'saxml.server.pax.lm.params.lm_cloud.'
_MAIN = upstream_facts.load('main-llama').classes
_RELEASE = upstream_facts.load('r1.2.0-llama').classes
_NAMES = tuple(n for n in {**_RELEASE, **_MAIN} if n.startswith('LLaMA'))
_RENAMED = {'RMS_NORM_EPSILON': 'LAYER_NORM_EPSILON'}
# Attributes of upstream that our template lacks, because each model of the
# family has them, or because they only change how upstream computes.
_UPSTREAMS_OWN = (
  'ACTIVATION_CLS',
  'ATTEN_NUM_SEQ_SPLITS',
  'DCN_MESH_SHAPE',
  'GPU_FLASH_DECODING',
  'NEXT_TOKEN_SAMPLER_TPL',
  'QUANTIZE_KV',
  'REPEATED_LAYERS',
  'USE_GATED_ACTIVATION',
  'USE_MQA',
  'USE_REPEATED_LAYER',
)
# The values of the file of the vocabulary, of the end ids and of rotary
# positions are ours.
_OURS = (
  'ARCHITECTURE',
  'QUANTIZATION',
  'ROTARY_BASE',
  'ROTARY_DIM',
  'ROTARY_SCALING',
  'SPM_MODEL',
  'STOP_TOKEN_IDS',
  'VOCABULARY_PATH',
)
# The attributes with faults, by class.
_SIZES = ('HIDDEN_DIMS', 'NUM_HEADS', 'NUM_KV_HEADS', 'NUM_LAYERS')
_FAULTS = {
  'LLaMA3_8BFP16x1': (*_SIZES, 'MODEL_DIMS'),
  'LLaMA3_70BFP16x8': (*_SIZES, 'MODEL_DIMS'),
  'LLaMA3_70BFP16x16': ('VOCAB_SIZE',),
  'LLaMA3_70BInt8LinearOnlyx8': ('VOCAB_SIZE',),
}


class LlamaTest(parameterized.TestCase):
  def test_every_class_is_recorded(self):
    names = [n for n in registry.names() if n.startswith(_MODULE + 'LLaMA')]
    self.assertCountEqual(names, [_MODULE + name for name in _NAMES])

  @parameterized.parameters(*_NAMES)
  def test_every_attribute_is_upstreams(self, name):
    facts = _MAIN.get(name) or _RELEASE[name]
    expected = dict(facts.attributes)
    for attribute in _UPSTREAMS_OWN:
      expected.pop(attribute, None)
    for theirs, own in _RENAMED.items():
      expected[own] = expected.pop(theirs)
    expected.setdefault('NUM_KV_HEADS', expected['NUM_HEADS'])
    ours = registry.lookup(_MODULE + name)
    self.assertEqual(ours.test_mode, expected.pop('test_mode', False))
    quantization = 'int8_weights' if facts.quantized else 'none'
    self.assertEqual(ours.QUANTIZATION, quantization)
    own = (*_OURS, *_FAULTS.get(name, ()))
    for attribute in filter(str.isupper, dir(ours)):
      default = getattr(template.ServableLMParams, attribute)
      value = expected.pop(attribute, default)
      if attribute not in own:
        self.assertEqual(getattr(ours, attribute), value, attribute)
    self.assertEmpty(expected)

  @parameterized.parameters(*_FAULTS)
  def test_faults_are_upstreams(self, name):
    facts = (_MAIN.get(name) or _RELEASE[name]).attributes
    ours = registry.lookup(_MODULE + name)
    for attribute in _FAULTS[name]:
      value = facts.get(attribute)
      if (name, attribute) not in (
        # These two are the same in Llama 3 8B by chance.
        ('LLaMA3_8BFP16x1', 'NUM_HEADS'),
        ('LLaMA3_8BFP16x1', 'NUM_LAYERS'),
        ('LLaMA3_8BFP16x1', 'MODEL_DIMS'),
      ):
        self.assertNotEqual(getattr(ours, attribute), value, attribute)

  @parameterized.parameters(*_NAMES)
  def test_every_class_has_settings(self, name):
    settings = settings_lib.Settings.from_params(
      registry.lookup(_MODULE + name)
    )
    self.assertEqual(settings.family, llama.FAMILY)
    self.assertEqual(settings.engine.search, 'sample')
    model = settings.model_config()
    self.assertEqual(model.head_dim, 128)
    self.assertEqual(model.rotary_dim, 128)
    latest = name.startswith(('LLaMA3_', 'LLaMA31_'))
    self.assertEqual(model.rotary_base, 500000.0 if latest else 10000.0)
    self.assertEqual(settings.sos_id, 128000 if latest else 1)
    ids = (128001, 128008, 128009) if latest else None
    self.assertEqual(settings.stop_ids, ids)
    scaled = architecture.RotaryScaling(8.0, 1.0, 4.0, 8192)
    self.assertEqual(
      model.rotary_scaling, scaled if 'LLaMA31' in name else None
    )

  @parameterized.parameters(
    ('7b', 6.74), ('13b', 13.02), ('33b', 32.53), ('65b', 65.29),
    ('70b', 68.98), ('llama3_1b', 1.50), ('llama3_8b', 8.03),
    ('llama3_70b', 70.55), ('llama3_405b_mp8', 405.85),
  )  # fmt: skip
  def test_sizes_give_the_published_numbers_of_parameters(self, name, billions):
    size = llama_sizes.SIZES[name]
    width = size.model_dim
    heads = size.num_heads + size.kv_heads
    layer = width * (2 * size.head_dim * heads + 3 * size.hidden_dim + 2)
    # The 1B is published with a tied head, and 1.24 billion parameters.
    total = size.num_layers * layer + width * (2 * size.vocab_size + 1)
    self.assertAlmostEqual(total / 1e9, billions, delta=0.005)

  def test_overrides_make_a_small_model(self):
    params = overrides.apply(
      registry.lookup(_MODULE + 'LLaMA3_8BFP16Testx4'),
      {
        'NUM_LAYERS': '2',
        'MODEL_DIMS': '64',
        'NUM_HEADS': '4',
        'NUM_KV_HEADS': '2',
        'DIMS_PER_HEAD': '16',
        'ROTARY_DIM': '16',
        'HIDDEN_DIMS': '96',
        'ROTARY_SCALING': '[8.0, 1.0, 4.0, 8192.0]',
      },
    )
    model = settings_lib.Settings.from_params(params).model_config()
    self.assertEqual((model.num_heads, model.kv_heads), (4, 2))
    self.assertEqual(model.rotary_scaling.factor, 8.0)

  @parameterized.parameters('[8.0, 1.0]', '[8.0, 4.0, 1.0, 8192.0]')
  def test_refuses_an_unusable_scaling(self, value):
    with self.assertRaisesRegex(
      errors.InvalidArgument, 'LLaMA3_8BFP16Testx4.ROTARY_SCALING is .*null'
    ):
      settings_lib.published(
        _MODULE + 'LLaMA3_8BFP16Testx4', {'ROTARY_SCALING': value}
      )


if __name__ == '__main__':
  absltest.main()
