"""Tests that all attributes of published params equal those of upstream."""

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.families import gptj_published
from saxml_ext.params import published  # noqa: F401 Registers or sets up.
from saxml_ext.params import registry
from saxml_ext.params import settings as settings_lib
from saxml_ext.params import template
from saxml_ext.params.testing import upstream_facts

_PACKAGE = 'saxml.server.pax.lm.params.'
_MODULE = _PACKAGE + 'gptj.'

# The source from which each class is recorded.
_SOURCES = {
  'GPTJ': 'mlperf4.0',
  'GPTJ4INT8BS32': 'mlperf4.0',
  'GPTJ4TokenizedINT8BS32': 'mlperf4.0',
  'GPTJ4TokenizedINT8BS32XLA': 'mlperf4.0',
  'GPTJ4TokenizedINT8BS32XLAEarly': 'mlperf4.0',
  'GPTJ4TokenizedINT8BS32XLAWait40MB6': 'mlperf4.0',
  'GPTJ4TokenizedINT8BS32XLAWait40MB6Offline': 'mlperf4.0',
  'GPTJ4TokenizedINT8BS32XLAWait40MB6Server': 'mlperf4.0',
  'GPTJ4TokenizedFP16BS32': 'mlperf4.0-fp16',
  'GPTJ4BF16BS32': 'r1.2.0',
  'GPTJ4TokenizedBF16BS32': 'r1.2.0',
  'GPTJ4BS32Int8Opt10Early': 'inference-v3.1',
  'GPTJ4BS32Int8Opt10Wait40MB6': 'inference-v3.1',
}
# Attributes of upstream's classes that our template lacks, because the server
# supports only one value.
_UPSTREAMS_OWN = {
  'ACTIVATION_CLS': 'GELU',
  'DCN_MESH_SHAPE': None,
  'NORM_POLICY': 'pre',
  'TRAINING_OPTIMIZED_SHARDING': False,
}
# Attributes of this server, and of upstream's templates for other models.
_NOT_UPSTREAMS = frozenset(
  {
    'ARCHITECTURE',
    'ATTEN_LOGIT_CAP',
    'BEAM_RULE',
    'COMPILE_BEHIND',
    'CONTEXT_LEN',
    'EARLY_STOPPING',
    'FAIL_ON_INPUT_TRUNCATION',
    'GRADIENT_WRT_INPUT_TENSOR_NAMES',
    'GRADIENT_WRT_MDL_VAR_TENSOR_NAMES',
    'INCLUDE_EOS_SCORE',
    'KV_CACHE_DTYPE',
    'LENGTH_PENALTY',
    'MAX_LOGPROBS',
    'MIXED_SEARCH',
    'NUM_EXTRA_IDS',
    'NUM_KV_HEADS',
    'PRECOMPUTE_KV_CACHE_PREFIX',
    'PREFILL_CHUNK_LEN',
    'PREFILL_INTERVAL_STEPS',
    'QUANTIZATION',
    'QUANTIZE_SOFTMAX',
    'REVERSE_EXTRA_IDS',
    'ROTARY_BASE',
    'ROTARY_SCALING',
    'SOFTMAX_CAP_LOGITS',
    'TEMPERATURE',
  }
)
# Attributes of only one release's template. Our defaults are those of the other
# release.
_OF_SOME_RELEASES = {
  'NEXT_TOKEN_SAMPLER_TPL': None,
  'NUM_CACHE_SLOTS': 0,
  'USE_BATCH_SHARDING': False,
  'XLA_TPU_FLAGS': {},
}


def _attributes(cls: type) -> dict[str, object]:
  return {name: getattr(cls, name) for name in dir(cls) if name.isupper()}


class PublishedTest(parameterized.TestCase):
  def test_every_class_is_recorded(self):
    names = [name for name in registry.names() if name.startswith(_MODULE)]
    self.assertCountEqual(names, [_MODULE + name for name in _SOURCES])

  @parameterized.parameters(*_SOURCES.items())
  def test_every_attribute_is_upstreams(self, name, source):
    facts = upstream_facts.load(source).classes[name]
    expected = dict(facts.attributes)
    for attribute, value in _UPSTREAMS_OWN.items():
      self.assertEqual(expected.pop(attribute), value)
    # Our class leaves this attribute to the checkpoint on purpose.
    self.assertStartsWith(expected['VOCABULARY_PATH'], 'gs://')
    expected['VOCABULARY_PATH'] = None
    # The default of r1.2.0 is a sampler, which has no effect on beams.
    expected.pop('NEXT_TOKEN_SAMPLER_TPL', None)
    expected = {**_OF_SOME_RELEASES, **expected}
    cls = registry.lookup(_MODULE + name)
    ours = {
      attribute: value
      for attribute, value in _attributes(cls).items()
      if attribute not in _NOT_UPSTREAMS
    }
    if source == 'inference-v3.1':
      self.assertEqual(
        ours.pop('XLA_TPU_FLAGS'), gptj_published.XLA_FLAGS_BATCH_32
      )
      del expected['XLA_TPU_FLAGS']
    self.assertEqual(ours, expected)
    self.assertEqual(cls.QUANTIZATION, 'int8' if facts.quantized else 'none')

  @parameterized.parameters('mlperf4.0', 'r1.2.0')
  def test_defaults_are_upstreams(self, release):
    ours = _attributes(template.ServableLMParams)
    for attribute, value in upstream_facts.load(release).template.items():
      # Every published class sets FPROP_FOR_PREFIX.
      if attribute not in ('FPROP_FOR_PREFIX', 'NEXT_TOKEN_SAMPLER_TPL'):
        self.assertEqual(ours[attribute], value, attribute)

  def test_attributes_of_ours_alone_keep_their_defaults(self):
    for name in _SOURCES:
      cls = registry.lookup(_MODULE + name)
      for attribute in _NOT_UPSTREAMS - {'QUANTIZATION'}:
        self.assertEqual(
          getattr(cls, attribute), getattr(template.ServableLMParams, attribute)
        )

  def test_names_without_the_module(self):
    for name in ('GPTJ4BS32Int8Opt10Early', 'GPTJ4BS32Int8Opt10Wait40MB6'):
      self.assertIs(
        registry.lookup(_PACKAGE + name), registry.lookup(_MODULE + name)
      )

  @parameterized.parameters(*_SOURCES)
  def test_every_class_has_settings(self, name):
    settings = settings_lib.Settings.from_params(
      registry.lookup(_MODULE + name)
    )
    self.assertEqual(settings.engine.eos_id, 50256)
    self.assertEqual(settings.engine.pad_id, 50256)
    self.assertEqual(settings.engine.max_prompt, 1919)
    self.assertEqual(settings.engine.max_new_tokens, 128)
    self.assertIsNone(settings.sos_id)
    self.assertEqual(settings.needs_tokenizer, not settings.tokenized_input)

  def test_base_flags_are_upstreams(self):
    facts = upstream_facts.load('mlperf4.0')
    self.assertEqual(facts.compiler_options, gptj_published.XLA_FLAGS)


if __name__ == '__main__':
  absltest.main()
