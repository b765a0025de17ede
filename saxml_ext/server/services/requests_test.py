"""Tests of the conversion of extra inputs to requests of the engine."""

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.common import errors
from saxml_ext.engine import config as config_lib
from saxml_ext.params import gptj
from saxml_ext.params import published
from saxml_ext.params import settings as settings_lib
from saxml_ext.protobuf import common_pb2
from saxml_ext.server.services import requests

_DECLARED = {
  'temperature': 0.5,
  'per_example_max_decode_steps': 128,
  'weights': [0.0, 0.0],
  'mode': 'plain',
}


def _given(items=(), tensors=(), strings=()) -> common_pb2.ExtraInputs:
  return common_pb2.ExtraInputs(
    items=dict(items),
    tensors={k: common_pb2.Tensor(values=v) for k, v in dict(tensors).items()},
    strings=dict(strings),
  )


class MergeTest(parameterized.TestCase):
  def test_declared_values_are_the_defaults(self):
    merged = requests.merge(_given(), _DECLARED)
    self.assertEqual(merged, _DECLARED)
    self.assertIsNot(merged, _DECLARED)

  def test_values_of_the_request_override_defaults(self):
    merged = requests.merge(
      _given({'temperature': 0.25}, {'weights': [1, 2]}, {'mode': 'other'}),
      _DECLARED,
    )
    self.assertEqual(merged['temperature'], 0.25)
    self.assertEqual(merged['weights'], [1.0, 2.0])
    self.assertEqual(merged['mode'], 'other')
    self.assertEqual(merged['per_example_max_decode_steps'], 128)

  @parameterized.parameters(
    (_given({'top_q': 1}), "'top_q' is not declared .*: mode, per_example"),
    (_given({}, {'top_q': [1]}), "'top_q' is not declared"),
    (_given({}, {}, {'top_q': 'x'}), "'top_q' is not declared"),
    (_given({'weights': 1}, {'weights': [1, 2]}), "'weights' is set twice"),
    (_given({'mode': 1}, {}, {'mode': 'x'}), "'mode' is set twice"),
    (_given({}, {'weights': [1]}), "'weights' is a list of 1 numbers"),
    (_given({}, {'temperature': [1]}), "'temperature' is a list of 1"),
    (_given({'temperature': float('nan')}), "'temperature' is nan"),
    (_given({}, {'weights': [1, float('inf')]}), "'weights' is inf"),
  )
  def test_invalid_inputs_are_refused(self, given, message):
    with self.assertRaisesRegex(errors.InvalidArgument, message):
      requests.merge(given, _DECLARED)


_ENGINE = config_lib.EngineConfig(eos_id=0, max_new_tokens=128)


class MaxNewTokensTest(parameterized.TestCase):
  def _limit(self, **items) -> int | None:
    merged = requests.merge(_given(items), _DECLARED)
    return requests.max_new_tokens(merged, _ENGINE)

  def test_limit_of_the_request_overrides_that_of_the_model(self):
    self.assertEqual(self._limit(), 128)
    self.assertEqual(self._limit(per_example_max_decode_steps=7), 7)
    self.assertEqual(requests.max_new_tokens({}, _ENGINE), 128)

  def test_context_limit_is_applied_by_the_engine(self):
    engine = config_lib.EngineConfig(
      eos_id=0,
      search='any',
      max_context=600,
      max_prompt=599,
      prefill_chunk=64,
      suffix_block=128,
      max_new_tokens=128,
    )
    key = 'per_example_max_decode_steps'
    self.assertIsNone(requests.max_new_tokens({key: None}, engine))
    self.assertEqual(requests.max_new_tokens({key: 65536}, engine), 65536)

  @parameterized.parameters(0, -1, 1.5)
  def test_only_positive_whole_numbers_are_accepted(self, value):
    with self.assertRaisesRegex(errors.InvalidArgument, 'whole number'):
      self._limit(per_example_max_decode_steps=value)

  def test_limit_above_that_of_the_model_is_refused(self):
    with self.assertRaisesRegex(errors.InvalidArgument, '129, above .* 128'):
      self._limit(per_example_max_decode_steps=129)

  def test_string_limit_is_refused(self):
    with self.assertRaisesRegex(errors.InvalidArgument, "is 'many'"):
      merged = requests.merge(
        _given(strings={'per_example_max_decode_steps': 'many'}), _DECLARED
      )
      requests.max_new_tokens(merged, _ENGINE)


class ChoicesTest(parameterized.TestCase):
  def _choices(self, given=None, base=gptj.TinySampleFP32):
    settings = settings_lib.Settings.from_params(base)
    declared = settings.extra_inputs['lm.generate']
    merged = requests.merge(given or _given(), declared)
    return requests.choices(merged, settings)

  def test_settings_are_the_defaults(self):
    self.assertEqual(
      self._choices(),
      dict(stop_ids=None, temperature=1.0, top_k=40, top_p=1.0),
    )

  def test_values_of_the_request_are_converted(self):
    given = _given(
      {'temperature': 0.5, 'per_example_top_k': 900, 'gumbel_prng_key': 7},
      {'eos_id': [0, 0, 11, 12]},
    )
    self.assertEqual(
      self._choices(given),
      dict(stop_ids=(11, 12), temperature=0.5, top_k=40, top_p=1.0, seed=7),
    )

  @parameterized.parameters(
    # The overrides, per_example_top_k of the request, and the engine's top_k.
    ('TinySampleFP32', {}, 0, 0),
    ('TinySampleFP32', {'TOP_K': '5'}, None, 5),
    ('TinySampleFP32', {'TOP_K': '5'}, 50, 5),
    ('TinySampleFP32', {'TOP_K': '0'}, None, 0),
    ('TinySampleFP32', {'TOP_K': '0'}, 50, 50),
    ('TinySampleFP32', {'MIXED_SEARCH': 'true'}, None, 40),
    ('TinySampleFP32', {'MIXED_SEARCH': 'true'}, 0, 0),
    ('TinySampleFP32', {'MIXED_SEARCH': 'true'}, 100, 100),
    ('AnyGPTJ', {}, None, 0),
    ('AnyGPTJ', {}, -1, -1),
    ('AnyGPTJ', {}, 50, 50),
    ('AnyGPTJ', {'TOP_K': '5'}, None, 5),
    ('AnyGPTJ', {'TOP_K': '5'}, 0, 0),
    ('AnyGPTJ', {'TOP_K': '5'}, 50, 50),
  )
  def test_top_k_is_a_limit_only_without_mixed_search(
    self, name, overrides, top_k, expected
  ):
    settings = settings_lib.published(
      f'saxml_ext.params.gptj.{name}', overrides
    )
    given = _given({} if top_k is None else {'per_example_top_k': top_k})
    merged = requests.merge(given, settings.extra_inputs['lm.generate'])
    self.assertEqual(requests.choices(merged, settings)['top_k'], expected)

  def test_beams_use_only_stop_ids(self):
    self.assertEqual(self._choices(base=published.GPTJ), dict(stop_ids=None))

  @parameterized.parameters(
    (_given({'per_example_top_k': 1.5}), "'per_example_top_k' is 1.5"),
    (_given(strings={'temperature': 'hot'}), "'temperature' is 'hot'"),
    (_given(tensors={'eos_id': [0, 0, 0, 0.5]}), "'eos_id' is 0.5"),
  )
  def test_values_of_another_type_are_refused(self, given, message):
    with self.assertRaisesRegex(errors.InvalidArgument, message):
      self._choices(given)


if __name__ == '__main__':
  absltest.main()
