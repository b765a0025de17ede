"""Tests of reading config.json by the tables of families."""

import dataclasses
from typing import Any

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.engine import architecture
from saxml_ext.families import all as families
from saxml_ext.families import hf_config
from saxml_ext.families import hf_rotary
from saxml_ext.pax import errors

_SIZES = {
  'num_hidden_layers': 2,
  'hidden_size': 64,
  'num_attention_heads': 4,
  'intermediate_size': 96,
  'max_position_embeddings': 2048,
  'vocab_size': 100,
}
_GPTJ = {
  'model_type': 'gptj',
  'n_layer': 2,
  'n_embd': 64,
  'n_head': 4,
  'rotary_dim': 8,
  'vocab_size': 100,
}
_LINEAR = {'type': 'linear', 'factor': 4.0}
_LLAMA3 = {
  'rope_type': 'llama3',
  'factor': 8.0,
  'low_freq_factor': 1.0,
  'high_freq_factor': 4.0,
  'original_max_position_embeddings': 512,
}


def _read(model_type: str, **entries: Any) -> hf_config.HFConfig:
  base = _GPTJ if model_type == 'gptj' else _SIZES
  document = {**base, 'model_type': model_type, **entries}
  family = families.matching(document)
  assert family is not None and family.config is not None
  return hf_config.read('config.json', document, family.config)


class ReadTest(parameterized.TestCase):
  def test_rope_scaling_applies_beside_rope_parameters(self):
    config = _read(
      'llama',
      rope_scaling=_LLAMA3 | {'rope_theta': 5e5},
      rope_parameters={'rope_theta': 5e5},
    )
    self.assertEqual(
      config.rotary_scaling, architecture.RotaryScaling(8.0, 1.0, 4.0, 512)
    )
    self.assertEqual(config.rotary_base, 5e5)

  def test_legacy_names_apply_beside_rope_parameters(self):
    config = _read(
      'gpt_neox',
      rope_parameters={'rope_type': 'default'},
      rotary_pct=0.5,
      rotary_emb_base=500.0,
    )
    self.assertEqual(config.rotary_dim, 8)
    self.assertEqual(config.rotary_base, 500.0)

  @parameterized.parameters(
    (
      'llama',
      {'rope_scaling': _LINEAR, 'rope_parameters': {'rope_theta': 5e5}},
      r'two values of rope_theta: 10000.0 \(the default of transformers\) and'
      r' 500000.0 \(rope_parameters\)',
    ),
    (
      'llama',
      {'rope_theta': 1e4, 'rope_parameters': {'rope_theta': 5e5}},
      r'rope_theta: 500000.0 \(rope_parameters\) and 10000.0 \(rope_theta\)',
    ),
    (
      'llama',
      {
        'rope_scaling': _LINEAR,
        'rope_parameters': {'rope_type': 'yarn', 'factor': 4.0},
      },
      'rope_type: "linear" .rope_scaling. and "yarn" .rope_parameters.',
    ),
    (
      'llama',
      {'rope_scaling': {'type': 'linear', 'rope_type': 'default'}},
      'rope_type: "default" .rope_scaling. and "linear" .rope_scaling.',
    ),
    (
      'llama',
      {'rope_scaling': _LLAMA3, 'original_max_position_embeddings': 1024},
      'original_max_position_embeddings: 512 .rope_scaling. and 1024',
    ),
    (
      'gpt_neox',
      {'rotary_pct': 0.5, 'rope_parameters': {'partial_rotary_factor': 0.25}},
      'partial_rotary_factor: 0.25 .rope_parameters. and 0.5 .rotary_pct.',
    ),
    (
      'gpt_neox',
      {'rotary_emb_base': 1e4, 'rope_theta': 5e5},
      'rope_theta: 10000.0 .rotary_emb_base. and 500000.0 .rope_theta.',
    ),
    (
      'gptj',
      {'num_hidden_layers': 3},
      'n_layer: 3 .num_hidden_layers. and 2 .n_layer.',
    ),
  )
  def test_contradiction_names_both_places(self, model_type, entries, message):
    with self.assertRaisesRegex(errors.CheckpointError, message):
      _read(model_type, **entries)

  def test_linear_scaling_divides_all_positions(self):
    config = _read('llama', rope_scaling=_LINEAR, rope_theta=1e5)
    self.assertEqual(config.rotary_scaling, hf_rotary.linear(4.0))
    self.assertEqual(config.rotary_base, 1e5)

  def test_dynamic_scaling_changes_nothing_within_the_context(self):
    config = _read('llama', rope_scaling={'type': 'dynamic', 'factor': 2.0})
    self.assertIsNone(config.rotary_scaling)

  def test_longrope_serves_texts_up_to_the_original_length(self):
    entries = {
      'type': 'longrope',
      'short_factor': [1.0 + i for i in range(8)],
      'long_factor': [9.0] * 8,
      'original_max_position_embeddings': 128,
    }
    config = _read('llama', rope_scaling=entries)
    self.assertEqual(config.max_positions, 128)
    scaling = config.rotary_scaling
    self.assertEqual(scaling.divisors, tuple(1.0 + i for i in range(8)))
    # 2,048 positions are 16 times the original length.
    self.assertAlmostEqual(scaling.gain, (1 + 4 / 7) ** 0.5)

  def test_yarn_keeps_short_waves_and_divides_long_ones(self):
    entries = {'rope_type': 'yarn', 'factor': 4.0}
    scaling = _read('llama', rope_scaling=entries).rotary_scaling
    self.assertEqual(scaling.divisors[0], 1.0)
    self.assertEqual(scaling.divisors[-1], 4.0)
    self.assertAlmostEqual(scaling.gain, 1.1386294, 6)

  @parameterized.parameters(
    ({}, 2048, 2048**0.5),
    ({'torch_dtype': 'bfloat16'}, 2048, 45.25),
    ({'dtype': 'bfloat16'}, 3072, 55.5),
    ({'dtype': 'float16'}, 3072, 55.4375),
  )
  def test_factor_of_embeddings_is_rounded(self, entries, width, factor):
    entries = entries | {'hidden_size': width, 'num_key_value_heads': 1}
    config = _read('gemma', **entries)
    self.assertAlmostEqual(config.details.embedding, factor, 5)

  @parameterized.parameters(
    ('gemma', {'use_bidirectional_attention': True}, 'use_bidirectional_att'),
    ('qwen2', {'is_causal': False}, 'is_causal is false'),
    ('granite', {'residual_multiplier': '1'}, 'residual_multiplier is "1"'),
    ('olmo2', {'attention_bias': True}, 'attention_bias is true'),
    ('phi3', {'rope_scaling': {'type': 'linear'}}, 'rope_type is "linear"'),
    ('qwen3', {'layer_types': ['sliding_attention'] * 2}, 'sliding_window is'),
    ('smollm3', {'no_rope_layers': [1]}, 'no_rope_layers is .1.. Expected a'),
  )
  def test_families_refuse(self, model_type, entries, message):
    entries = {
      'num_key_value_heads': 2,
      'max_position_embeddings': 8192,
      **entries,
    }
    with self.assertRaisesRegex(errors.CheckpointError, message):
      _read(model_type, **entries)

  def test_claimed_layers_are_refused_before_they_are_listed(self):
    with self.assertRaisesRegex(errors.CheckpointError, 'num_hidden_layers is'):
      _read('smollm3', num_hidden_layers=2_000_000_000)
    with self.assertRaisesRegex(errors.CheckpointError, 'layer_types is'):
      _read(
        'llama', num_hidden_layers=2_000_000_000, layer_types=['full_attention']
      )

  def test_own_width_of_heads(self):
    config = _read('llama', head_dim=32)
    self.assertEqual((config.head_dim, config.rotary_dim), (32, 32))
    self.assertEqual(_read('llama', head_dim=16), _read('llama'))

  def test_original_length_defaults_to_the_positions(self):
    entries = dict(_LLAMA3)
    del entries['original_max_position_embeddings']
    config = _read('llama', rope_parameters=entries)
    self.assertEqual(config.rotary_scaling.original_length, 2048)

  @parameterized.parameters(
    ({'rope_scaling': 'none'}, 'rope_scaling is "none". Expected an object'),
    ({'rope_scaling': 4.0}, 'rope_scaling is 4.0. Expected an object'),
    ({'rope_parameters': []}, r'rope_parameters is \[\]. Expected an object'),
    (
      {'rope_scaling': {'rope_type': 'proportional', 'factor': 4.0}},
      'rope_type is "proportional". Expected one of "default", "llama3"',
    ),
    (
      {'rope_scaling': {'rope_type': 'longrope', 'short_factor': [1.0]}},
      'short_factor is .1.0.. Expected a list of 8 positive numbers',
    ),
    (
      {'rope_scaling': {'rope_type': 'yarn', 'attention_factor': -1}},
      'attention_factor is -1. Expected a number above 0',
    ),
    ({'layer_types': ['sliding_attention'] * 2}, 'layer_types is .*sliding'),
    (
      {'attn_logit_softcapping': 50.0},
      'attn_logit_softcapping is 50.0. Expected null',
    ),
    ({'rope_scaling': {'rope_type': 'linear'}}, '^[^:]*: factor is missing'),
    ({'rope_theta': 1e40}, r'rope_theta is 1e\+40. .* below 1e\+18'),
    (
      {'vocab_size': 10**12},
      'vocab_size is 1000000000000. Expected an integer between 1 and 2147483',
    ),
    ({'vocab_size': 0}, 'vocab_size is 0. Expected an integer between 1'),
    ({'rms_norm_eps': None}, 'rms_norm_eps is null. Expected a number'),
    ({'tie_word_embeddings': 'false'}, 'tie_word_embeddings is "false"'),
    ({'attention_bias': True}, 'attention_bias is true. Expected false'),
    ({'attention_bias': 0}, 'attention_bias is 0. Expected false'),
    ({'head_dim': 0}, 'head_dim is 0. Expected an integer between 1'),
    ({'eos_token_id': 2**31}, 'eos_token_id is 2147483648. Expected the id'),
    ({'eos_token_id': [2, -1]}, r'eos_token_id is \[2, -1\]'),
    ({'text_config': {'hidden_size': 2}}, 'text_config is .*. Expected null'),
    ({'partial_rotary_factor': 0.5}, 'partial_rotary_factor is 0.5'),
    ({'per_layer_config': {'0': {}}}, 'per_layer_config is'),
  )
  def test_refuses(self, entries, message):
    with self.assertRaisesRegex(errors.CheckpointError, message):
      _read('llama', **entries)

  def test_scaling_of_gptj_is_refused(self):
    with self.assertRaisesRegex(errors.CheckpointError, 'rope_scaling is'):
      _read('gptj', rope_scaling=_LINEAR)

  def test_minus_one_is_no_token(self):
    config = _read('llama', pad_token_id=-1, bos_token_id=-1, eos_token_id=-1)
    self.assertEqual((config.pad_id, config.bos_id, config.eos_id), (None,) * 3)
    self.assertEqual(config.stop_ids, ())

  def test_missing_tokens_are_those_of_transformers(self):
    config = _read('llama')
    self.assertEqual((config.bos_id, config.eos_id), (1, 2))
    self.assertIsNone(_read('llama', eos_token_id=None).eos_id)

  def test_null_and_missing_key_heads_differ_as_in_transformers(self):
    self.assertEqual(_read('qwen2', num_key_value_heads=None).kv_heads, 4)
    # transformers' default of Qwen2 is 32 heads.
    with self.assertRaisesRegex(errors.CheckpointError, 'num_kv_heads 32'):
      _read('qwen2')

  def test_aliases_of_gptj_are_read(self):
    document = {**_GPTJ, 'hidden_size': 32}
    del document['n_embd']
    family = families.FAMILIES['gptj']
    config = hf_config.read('config.json', document, family.config)
    self.assertEqual(config.model_dim, 32)


class WindowTest(parameterized.TestCase):
  @parameterized.parameters(
    dict(use_sliding_window=False, sliding_window=16),
    dict(use_sliding_window=True, sliding_window=2048),
    dict(use_sliding_window=True, sliding_window=None),
    dict(use_sliding_window=True, sliding_window=16, max_window_layers=2),
    dict(use_sliding_window=True),  # 4,096 by default.
    dict(layer_types=['full_attention'] * 2),
  )
  def test_window_that_hides_nothing_is_accepted(self, **entries):
    _read('qwen2', num_key_value_heads=2, **entries)

  @parameterized.parameters(
    dict(use_sliding_window=True, max_window_layers=1),
    dict(layer_types=['full_attention', 'sliding_attention']),
  )
  def test_shorter_window_is_refused_with_its_limit(self, **entries):
    with self.assertRaisesRegex(
      errors.CheckpointError,
      'sliding_window is 16. Expected null or at least 2048, .* set the number'
      ' of positions to 16',
    ):
      _read('qwen2', num_key_value_heads=2, sliding_window=16, **entries)

  @parameterized.parameters(
    ({'max_position_embeddings': 4096}, True),
    ({'max_position_embeddings': 8192}, False),
    ({'max_position_embeddings': 8192, 'sliding_window': None}, True),
    ({'max_position_embeddings': 8192, 'sliding_window': 8192}, True),
    ({'max_position_embeddings': 8192, 'sliding_window': 8191}, False),
  )
  def test_window_without_switch_always_applies(self, entries, is_read):
    # The class of Mistral has a window of 4,096 by default.
    table = dataclasses.replace(
      families.FAMILIES['llama'].config, window=hf_config.Window(4096)
    )
    document = {**_SIZES, **entries}
    if is_read:
      hf_config.read('config.json', document, table)
      return
    with self.assertRaisesRegex(errors.CheckpointError, 'sliding_window is'):
      hf_config.read('config.json', document, table)

  def test_written_configs_have_no_shorter_window(self):
    table = families.FAMILIES['mistral'].config
    sizes = families.FAMILIES['mistral'].published['mistral-7b-v0.3']
    document = hf_config.document('mistral', sizes, table)
    read = hf_config.read('config.json', document, table)
    self.assertEqual(read.max_positions, 32768)


class MatchingTest(parameterized.TestCase):
  @parameterized.parameters(
    ({}, 'gpt_neox'),
    ({'hidden_act': 'gelu_fast'}, 'gpt_neox_tanh'),
    ({'use_parallel_residual': False}, 'gpt_neox_sequential'),
    (
      {'hidden_act': 'gelu_new', 'use_parallel_residual': False},
      'gpt_neox_sequential_tanh',
    ),
    ({'hidden_act': 'relu'}, 'gpt_neox'),
  )
  def test_settings_choose_the_variant(self, entries, name):
    family = families.matching({'model_type': 'gpt_neox', **entries})
    self.assertEqual(family.name, name)

  @parameterized.parameters('mixtral', 'lm_cloud', 'gpt_neox_tanh', 7, None)
  def test_unknown_types_have_no_family(self, model_type):
    self.assertIsNone(families.matching({'model_type': model_type}))
    types = families.model_types()
    self.assertContainsSubset(('gpt_neox', 'gptj', 'llama', 'qwen2'), types)
    self.assertNotIn(model_type, types)
    self.assertEqual(types, sorted(set(types)))


class TablesTest(parameterized.TestCase):
  @parameterized.parameters(*families.convertible())
  def test_entries_of_families_are_usable(self, name):
    family = families.FAMILIES[name]
    table = family.config
    fields = [field.name for field in dataclasses.fields(hf_config.HFConfig)]
    fields += ['rotary_share', 'original_length']
    self.assertContainsSubset(table.keys, fields)
    self.assertContainsSubset(table.defaults, fields)
    sizes = 'num_layers model_dim num_heads hidden_dim max_positions ln_epsilon'
    self.assertContainsSubset(sizes.split(), table.keys)
    for key, values in table.accepted.items():
      self.assertIsInstance(values, tuple, f'accepted[{key!r}] of {name}')
    self.assertContainsSubset(table.variant_keys, table.accepted)
    parts = [row.field for row in family.table.stored(joined=False)]
    for tensor, fused in family.fused.items():
      self.assertContainsSubset(fused, parts)
      self.assertIn((tensor,), {names[:1] for names in family.tensors.values()})
    if not {'rotary_dim', 'rotary_share'}.isdisjoint(table.keys):
      self.assertNotEqual(
        family.rotates_halves,
        family.architecture.interleaved,
        f'{name} rotates a part of each head, which is not reordered. Set'
        f' `interleaved` to {not family.rotates_halves}.',
      )


if __name__ == '__main__':
  absltest.main()
