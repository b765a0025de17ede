"""Tests that all attributes of lm_cloud equal those of upstream's classes."""

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.common import errors
from saxml_ext.families import all as families
from saxml_ext.params import lm_cloud
from saxml_ext.params import overrides
from saxml_ext.params import registry
from saxml_ext.params import settings as settings_lib
from saxml_ext.params import template
from saxml_ext.params.testing import upstream_facts

_MODULE = 'saxml.server.pax.lm.params.lm_cloud.'
_NAMES = tuple(
  name
  for name in upstream_facts.load('r1.2.0-lm-cloud').classes
  if name.startswith('LmCloud')
)
_QUANTIZED = {False: 'none', True: 'int8_weights'}
# Attributes of upstream that our template lacks, because the server supports
# only one value.
_UPSTREAMS_OWN = {
  'ACTIVATION_CLS': 'GELU',
  'COMBINE_QKV': True,
  'DCN_MESH_SHAPE': [1, 1, 1],
  'ENABLE_DCONV': False,
  'NORM_POLICY': 'pre',
  'RELATIVE_BIAS': False,
  'SEPARATE_EMBEDDING': False,
  'TRAINABLE_POSITION_EMB': False,
  'TRAINING_OPTIMIZED_SHARDING': False,
  'USE_GATED_ACTIVATION': False,
  'USE_REPEATED_LAYER': True,
  'USE_ROTARY_POSITION_EMB': False,
}
# The values that differ on purpose, or that upstream leaves to praxis'
# defaults.
_OURS = {
  'ARCHITECTURE': 'lm_cloud',
  'LAYER_NORM_EPSILON': 1e-6,
  'MODEL_DTYPE': 'bfloat16',
  'ROTARY_DIM': 0,
  'SPM_MODEL': lm_cloud.SMALL_VOCABULARY,
}


class LmCloudTest(parameterized.TestCase):
  def test_every_class_is_recorded(self):
    names = [name for name in registry.names() if name.startswith(_MODULE)]
    self.assertCountEqual(names, [_MODULE + name for name in _NAMES])

  @parameterized.parameters(*_NAMES)
  def test_every_attribute_is_upstreams(self, name):
    facts = upstream_facts.load('r1.2.0-lm-cloud').classes[name]
    expected = dict(facts.attributes)
    for attribute, value in _UPSTREAMS_OWN.items():
      self.assertEqual(expected.pop(attribute), value)
    # The default is a sampler of praxis; this server also has a sampler.
    del expected['NEXT_TOKEN_SAMPLER_TPL']
    ours = registry.lookup(_MODULE + name)
    self.assertEqual(ours.test_mode, expected.pop('test_mode', False))
    self.assertEqual(ours.QUANTIZATION, _QUANTIZED[facts.quantized])
    for attribute in filter(str.isupper, dir(ours)):
      if attribute != 'QUANTIZATION':
        default = getattr(template.ServableLMParams, attribute)
        value = expected.pop(attribute, default)
        self.assertEqual(
          getattr(ours, attribute), _OURS.get(attribute, value), attribute
        )
    self.assertEmpty(expected)

  @parameterized.parameters(*_NAMES)
  def test_every_class_has_settings(self, name):
    params = registry.lookup(_MODULE + name)
    settings = settings_lib.Settings.from_params(params)
    self.assertEqual(settings.engine.search, 'sample')
    self.assertEqual(settings.engine.eos_id, 1)
    self.assertEqual(settings.sos_id, 0)
    self.assertEqual(settings.methods, ('lm.generate', 'lm.score'))
    self.assertEqual(settings.vocabulary_path, lm_cloud.SMALL_VOCABULARY)
    self.assertEqual(settings.test_mode, name.endswith('Test'))
    self.assertEqual(settings.family, families.FAMILIES['lm_cloud'])

  def test_names_end_in_their_number_of_chips(self):
    for billions, chips in ((2, (4, 8, 16, 32)), (175, (32, 64, 128, 256))):
      for count in chips:
        name = f'{_MODULE}LmCloudSpmd{billions}B{count}Test'
        self.assertEqual(registry.lookup(name).ICI_MESH_SHAPE, [1, 1, count])

  def test_overrides_make_a_small_model(self):
    params = overrides.apply(
      registry.lookup(_MODULE + 'LmCloudSpmd175B32Test'),
      {
        'NUM_LAYERS': '2',
        'MODEL_DIMS': '64',
        'NUM_HEADS': '4',
        'DIMS_PER_HEAD': '16',
        'HIDDEN_DIMS': '256',
        'ICI_MESH_SHAPE': '[1, 1, 4]',
      },
    )
    settings = settings_lib.Settings.from_params(params)
    self.assertTrue(settings.test_mode)
    self.assertEqual(
      settings.shape,
      dict(
        num_layers=2,
        model_dim=64,
        num_heads=4,
        head_dim=16,
        hidden_dim=256,
        vocab_size=32000,
      ),
    )

  def test_caps_may_be_others(self):
    params = overrides.apply(
      lm_cloud.LmCloudSpmd2B,
      {'ATTEN_LOGIT_CAP': '20.0', 'SOFTMAX_CAP_LOGITS': 'null'},
    )
    architecture = settings_lib.Settings.from_params(params).family.architecture
    self.assertEqual(architecture.attention_cap, 20.0)
    self.assertIsNone(architecture.logit_cap)
    params = overrides.apply(params, {'ATTEN_LOGIT_CAP': '0.0'})
    with self.assertRaisesRegex(
      errors.InvalidArgument, 'must be finite and above 0'
    ):
      settings_lib.Settings.from_params(params)

  def test_a_publish_cannot_make_test_params(self):
    params = overrides.apply(lm_cloud.LmCloudSpmd175B, {'test_mode': 'true'})
    self.assertFalse(settings_lib.Settings.from_params(params).test_mode)

  def test_refuses_lengths_beyond_those_of_upstream(self):
    params = overrides.apply(lm_cloud.LmCloudSpmd2B, {'INPUT_SEQ_LEN': '1000'})
    with self.assertRaisesRegex(errors.InvalidArgument, 'MAX_SEQ_LEN=1024'):
      settings_lib.Settings.from_params(params)

  def test_a_vocabulary_path_takes_the_place_of_the_small_one(self):
    params = overrides.apply(
      lm_cloud.LmCloudSpmd2B, {'VOCABULARY_PATH': '"gs://bucket/own.model"'}
    )
    settings = settings_lib.Settings.from_params(params)
    self.assertEqual(settings.vocabulary_path, 'gs://bucket/own.model')


if __name__ == '__main__':
  absltest.main()
