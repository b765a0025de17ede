"""Tests of the refusal of unsupported serving params."""

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.common import errors
from saxml_ext.params import gptj
from saxml_ext.params import settings as settings_lib
from saxml_ext.params import support
from saxml_ext.params import template

# Attributes that change how upstream's server computes, but not its answers.
# Any value is accepted.
_WITHOUT_EFFECT = frozenset(
  {
    'DECODE_MESH_TRANSPOSE',
    'FPROP_FOR_PREFIX',
    'SUPPORT_LAZY_PREFIX_BROADCAST',
    'USE_BATCH_SHARDING',
    'USE_MATMUL_BEAM_SHUFFLE',
    'XLA_TPU_FLAGS',
  }
)


class _Recorder:
  """Serving params that record the names of the attributes that are read."""

  def __init__(self, params: type):
    self._params = params
    self.read: set[str] = set()

  def __getattr__(self, name: str) -> object:
    self.read.add(name)
    return getattr(self._params, name)


def _attributes() -> list[str]:
  return [n for n in vars(template.ServableLMParams) if n.isupper()]


def _check(**attributes) -> None:
  support.check(type('Params', (gptj.TinyTokenizedFP32,), attributes))


class SupportTest(parameterized.TestCase):
  def test_no_attribute_is_ignored(self):
    """Checks that each attribute is supported, refused or without effect."""
    read = set(_WITHOUT_EFFECT)
    for beams in (False, True):
      params = type(
        'Params', (template.ServableLMParams,), {'USE_BEAM_SEARCH': beams}
      )
      recorder = _Recorder(params)
      settings_lib.Settings.from_params(recorder)
      read |= recorder.read
    self.assertContainsSubset(_attributes(), read)

  def test_knows_no_other_attributes(self):
    self.assertContainsSubset(support.CHOICES, _attributes())
    self.assertContainsSubset(_WITHOUT_EFFECT, _attributes())
    self.assertNoCommonElements(support.CHOICES, _WITHOUT_EFFECT)

  def test_the_templates_own_values_are_served(self):
    support.check(template.ServableLMParams)

  @parameterized.parameters(
    dict(INCLUDE_EOS_SCORE=True),
    dict(NUM_EXTRA_IDS=100),
    dict(REVERSE_EXTRA_IDS=False),
    dict(VOCABULARY_CLASS='Nonsense'),
    dict(EMB_LOOKUP_STYLE='matmul'),
    dict(EXTRA_INPUTS_DTYPES={'temperature': 'int32'}),
    dict(TOP_K_RECALL_TARGET=0.9),
    dict(POLYMORPHIC_SEQ_LEN_EXCLUSION=(1, 2)),
    dict(TEXT_TO_EMBEDDING_SERVING_BATCH_SIZE=8),
    dict(QUANTIZATION='int2'),
    dict(BEAM_RULE='other'),
    dict(KV_CACHE_DTYPE='int4'),
    dict(SORT_SAMPLES=False),
    dict(FPROP_DTYPE='float16', MODEL_DTYPE='float16'),
    dict(PRECOMPUTE_KV_CACHE_PREFIX='x'),
    dict(TEXT_TO_EMBEDDING_MODEL_METHOD_NAME='x'),
    dict(TEXT_TO_EMBEDDING_OUTPUT_EMBEDDING_NAME='x'),
    dict(GRADIENT_WRT_INPUT_TENSOR_NAMES=['ids']),
    dict(GRADIENT_WRT_MDL_VAR_TENSOR_NAMES=['params/lm/softmax']),
    dict(ARCHITECTURE='other'),
    dict(NUM_EXTRA_IDS=False),
  )
  def test_refuses_what_is_not_offered(self, **attributes):
    name, value = next(iter(attributes.items()))
    with self.assertRaisesRegex(
      errors.Unimplemented, f'Params.{name}=.* is not supported. Publish with '
    ) as raised:
      _check(**attributes)
    self.assertIn(f'{name}={value!r}', str(raised.exception))

  def test_names_what_is_offered(self):
    with self.assertRaisesRegex(
      errors.Unimplemented,
      "Publish with 'none' or 'int8' or 'int8_weights' or 'int8_fine' or"
      " 'int4' or 'fp8'.$",
    ):
      _check(QUANTIZATION='int2')

  @parameterized.parameters('int4', 'fp8')
  def test_refuses_whole_matrices_on_several_devices(self, quantization):
    with self.assertRaisesRegex(errors.Unimplemented, 'cannot be split.*int8'):
      _check(QUANTIZATION=quantization, ICI_MESH_SHAPE=[1, 1, 2])

  def test_refuses_two_types(self):
    with self.assertRaisesRegex(errors.Unimplemented, 'Use the same type'):
      _check(FPROP_DTYPE='bfloat16')

  @parameterized.parameters(
    dict(VOCABULARY_CLASS='GPT2BPEVocabulary'),
    dict(SPM_MODEL='gs://bucket/spm.model'),
    dict(QUANTIZATION='int8_weights'),
    dict(QUANTIZATION='int4'),
    dict(QUANTIZATION='fp8'),
    dict(KV_CACHE_DTYPE='bfloat16'),
    dict(USE_BATCH_SHARDING=True, XLA_TPU_FLAGS={'xla_tpu_autofdo': 'true'}),
  )
  def test_serves(self, **attributes):
    _check(**attributes)


if __name__ == '__main__':
  absltest.main()
