"""Tests that config.json means the same here as in transformers.

Each setting is drawn from its usual and unusual values and places. If
transformers reads a file, this repository reads the same values or refuses it.
"""

import copy
import dataclasses
import json
from typing import Any
import warnings

from absl.testing import absltest
from absl.testing import parameterized
import hypothesis
from hypothesis import strategies as st
import numpy as np
import torch
import transformers
from transformers.models.gemma import modeling_gemma
from transformers.models.gpt_neox import modeling_gpt_neox
from transformers.models.granite import modeling_granite
from transformers.models.llama import modeling_llama
from transformers.models.mistral import modeling_mistral
from transformers.models.olmo2 import modeling_olmo2
from transformers.models.phi3 import modeling_phi3
from transformers.models.qwen2 import modeling_qwen2
from transformers.models.qwen3 import modeling_qwen3
from transformers.models.smollm3 import modeling_smollm3

from saxml_ext.engine import rotary
from saxml_ext.families import all as families
from saxml_ext.families import hf_config
from saxml_ext.pax import errors

transformers.logging.set_verbosity_error()
warnings.filterwarnings('ignore', category=FutureWarning)

_ROTARY = {
  'llama': modeling_llama.LlamaRotaryEmbedding,
  'qwen2': modeling_qwen2.Qwen2RotaryEmbedding,
  'mistral': modeling_mistral.MistralRotaryEmbedding,
  'gemma': modeling_gemma.GemmaRotaryEmbedding,
  'granite': modeling_granite.GraniteRotaryEmbedding,
  'olmo2': modeling_olmo2.Olmo2RotaryEmbedding,
  'phi3': modeling_phi3.Phi3RotaryEmbedding,
  'qwen3': modeling_qwen3.Qwen3RotaryEmbedding,
  'smollm3': modeling_smollm3.SmolLM3RotaryEmbedding,
  'gpt_neox': modeling_gpt_neox.GPTNeoXRotaryEmbedding,
}
_SIZES = {
  'num_layers': 'num_hidden_layers',
  'model_dim': 'hidden_size',
  'num_heads': 'num_attention_heads',
  'max_positions': 'max_position_embeddings',
  'vocab_size': 'vocab_size',
  'tied_embeddings': 'tie_word_embeddings',
}
_SLIDING = 'sliding_attention'
_THETA = st.sampled_from([None, 10000, 10000.0, 500000.0, 3580165449.0])
_LENGTH = st.sampled_from([None, 16, 32, 64])
_FACTOR = st.sampled_from([1.0, 2, 4.0, 8.0])
_KIND = st.sampled_from(
  ['default', 'linear', 'llama3', 'dynamic', 'yarn', 'longrope', 'none', None]
)
_SETTINGS = st.fixed_dictionaries(
  {},
  optional={
    'rope_type': _KIND,
    'type': _KIND,
    'rope_theta': _THETA,
    'factor': _FACTOR,
    'low_freq_factor': st.sampled_from([1.0, 0.5]),
    'high_freq_factor': st.sampled_from([4.0, 2]),
    'original_max_position_embeddings': _LENGTH,
    'partial_rotary_factor': st.sampled_from([None, 1.0, 0.5, 0.25]),
    'attention_factor': st.sampled_from([None, 1.5]),
    'beta_fast': st.sampled_from([None, 4]),
    'truncate': st.booleans(),
    'mscale': st.sampled_from([None, 0.5]),
    'mscale_all_dim': st.sampled_from([None, 0.75]),
    'short_factor': st.just([1.0, 2.0, 3.0, 4.5]),
    'long_factor': st.just([9.0] * 4),
  },
)
_LLAMA3 = {
  'rope_type': 'llama3',
  'factor': 8.0,
  'low_freq_factor': 1.0,
  'high_freq_factor': 4.0,
}
_NESTED = st.one_of(
  st.none(),
  st.just({}),
  st.just(_LLAMA3),
  st.just({'type': 'linear', 'factor': 2.0}),
  st.just({'type': 'yarn', 'factor': 4.0}),
  st.just(
    {
      'type': 'longrope',
      'short_factor': [1.0, 2.0, 3.0, 4.5],
      'long_factor': [9.0] * 4,
      'original_max_position_embeddings': 16,
    }
  ),
  _SETTINGS,
)
_ID = st.sampled_from([None, -1, 0, 5, [5], [3, 4], 11])
_COMMON = {
  'rope_scaling': _NESTED,
  'rope_parameters': _NESTED,
  'rope_theta': _THETA,
  'partial_rotary_factor': st.sampled_from([None, 1.0, 0.5]),
  'original_max_position_embeddings': _LENGTH,
  'tie_word_embeddings': st.booleans(),
  'bos_token_id': _ID,
  'eos_token_id': _ID,
  'pad_token_id': _ID,
  'n_ctx': st.just(7),
  'num_layers': st.just(7),
  'head_dim': st.sampled_from([None, 8, 16]),
  'dtype': st.sampled_from(['float32', 'bfloat16']),
  'torch_dtype': st.sampled_from(['float32', 'bfloat16']),
}
_HF = {
  'num_hidden_layers': 2,
  'hidden_size': 32,
  'num_attention_heads': 4,
  'intermediate_size': 48,
  'max_position_embeddings': 64,
  'vocab_size': 11,
}
_LLAMA = {
  'num_key_value_heads': st.sampled_from([None, 1, 2, 4, 3]),
  'rms_norm_eps': st.sampled_from([1e-6, 1e-5]),
  'max_position_embeddings': st.sampled_from([32, 128]),
  'hidden_act': st.sampled_from(['silu', 'swish', 'gelu']),
  'attention_bias': st.booleans(),
}
_QWEN = {
  **_LLAMA,
  'use_sliding_window': st.booleans(),
  'sliding_window': st.sampled_from([None, 16, 64, 4096]),
  'max_window_layers': st.sampled_from([0, 1, 2]),
  'layer_types': st.sampled_from(
    [
      None,
      ['full_attention'] * 2,
      ['full_attention', _SLIDING],
    ]
  ),
}
_FACTORS = (
  'embedding_multiplier',
  'residual_multiplier',
  'attention_multiplier',
  'logits_scaling',
)
# The required entries of each family, and the strategies of others.
_FILES = {
  'llama': (_HF, _LLAMA),
  'qwen2': (_HF, _QWEN),
  'mistral': (
    _HF,
    {**_LLAMA, 'sliding_window': st.sampled_from([None, 16, 64, 4096])},
  ),
  'qwen3': (_HF, _QWEN),
  'phi3': (
    _HF,
    {**_LLAMA, 'sliding_window': st.sampled_from([None, 16, 64, 4096])},
  ),
  'granite': (_HF, {**_LLAMA, **dict.fromkeys(_FACTORS, st.just(0.5))}),
  'smollm3': (
    _HF,
    {
      **_QWEN,
      'no_rope_layers': st.sampled_from([None, [1, 0], [1, 1]]),
      'no_rope_layer_interval': st.sampled_from([1, 2]),
    },
  ),
  'olmo2': (_HF, _LLAMA),
  'gemma': (
    _HF,
    {**_LLAMA, 'hidden_act': st.sampled_from(['gelu', 'gelu_pytorch_tanh'])},
  ),
  'gpt_neox': (
    _HF,
    {
      'rotary_pct': st.sampled_from([0.25, 0.5, 1.0]),
      'rotary_emb_base': _THETA,
      'layer_norm_eps': st.sampled_from([1e-5, 1e-6]),
      'use_parallel_residual': st.booleans(),
      'hidden_act': st.sampled_from(['gelu', 'gelu_fast', 'relu']),
      'num_key_value_heads': st.sampled_from([None, 2]),
    },
  ),
  'gptj': (
    {'n_layer': 2, 'n_embd': 32, 'n_head': 4, 'vocab_size': 11},
    {
      'n_inner': st.sampled_from([None, 48]),
      'n_positions': st.sampled_from([32, 64]),
      'rotary_dim': st.sampled_from([4, 8]),
      'num_hidden_layers': st.sampled_from([2, 3]),
      'hidden_size': st.sampled_from([32, 64]),
      'num_attention_heads': st.sampled_from([4, 2]),
      'max_position_embeddings': st.sampled_from([32, 64]),
      'layer_norm_epsilon': st.sampled_from([1e-5, 1e-6]),
    },
  ),
}
_ANY = st.recursive(
  st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**18), 10**18),
    st.floats(),
    st.text(max_size=5),
  ),
  lambda value: (
    st.lists(value, max_size=2)
    | st.dictionaries(st.text(max_size=5), value, max_size=2)
  ),
  max_leaves=4,
)


def _file(model_type: str) -> st.SearchStrategy:
  required, optional = _FILES[model_type]
  return st.fixed_dictionaries(
    {key: st.just(value) for key, value in required.items()},
    optional={
      key: value
      for key, value in (_COMMON | optional).items()
      # Scaling is refused in GPT-J, whose positions have no such setting.
      if key not in required
      and not (model_type == 'gptj' and key.startswith('rope'))
    },
  ).map(lambda document: document | {'model_type': model_type})


def _read(document: dict[str, Any]) -> hf_config.HFConfig | None:
  """Returns the sizes that this repository reads, or None if it refuses."""
  # JSON, because this is what users have.
  document = json.loads(json.dumps(document))
  try:
    family = families.matching(document)
    return hf_config.read('config.json', document, family.config)
  except errors.CheckpointError:
    return None


def _frequencies(model_type: str, config: Any) -> tuple[np.ndarray, float]:
  """Returns transformers' angles per position [pairs], and the factor of waves."""
  if model_type == 'gptj':
    exponent = torch.arange(0, config.rotary_dim, 2) / config.rotary_dim
    return (1.0 / 10000**exponent).numpy(), 1.0
  embedding = _ROTARY[model_type](config)
  return embedding.inv_freq.numpy(), embedding.attention_scaling


def _ids(value: int | list[int] | None) -> tuple[int, ...]:
  if value in (None, -1):
    return ()
  return tuple(value) if isinstance(value, list) else (value,)


class ConfigTest(parameterized.TestCase):
  @parameterized.parameters(*_FILES)
  def test_values_match_transformers(self, model_type):
    compared = []

    @hypothesis.settings(
      max_examples=400, deadline=None, derandomize=True, database=None
    )
    @hypothesis.given(_file(model_type))
    def check(document):
      sizes = _read(document)
      if sizes is None:
        return
      try:
        config = transformers.AutoConfig.for_model(**copy.deepcopy(document))
        frequencies = _frequencies(model_type, config)
      except Exception:  # pylint: disable=broad-except
        # transformers validates with exceptions of many types.
        return
      compared.append(document)
      self._compare(document, sizes, config, frequencies)

    check()
    print(f'{model_type}: {len(compared)} files compared.')
    self.assertGreater(len(compared), 20)

  def _compare(self, document, sizes, config, frequencies):
    settings = getattr(config, 'rope_parameters', None) or {}
    if settings.get('rope_type') == 'longrope':
      # Longer texts have other factors.
      config.max_position_embeddings = min(
        config.max_position_embeddings,
        settings['original_max_position_embeddings'],
      )
    for field, key in _SIZES.items():
      self.assertEqual(getattr(sizes, field), getattr(config, key), key)
    model_type = document['model_type']
    hidden = getattr(config, 'intermediate_size', None)
    if model_type == 'gptj':
      hidden = config.n_inner or 4 * config.n_embd
    self.assertEqual(sizes.hidden_dim, hidden)
    heads = getattr(config, 'num_key_value_heads', None)
    if hasattr(config, 'rms_norm_eps'):
      self.assertEqual(sizes.kv_heads, heads)
      self.assertEqual(sizes.ln_epsilon, config.rms_norm_eps)
    else:
      self.assertEqual(sizes.kv_heads, sizes.num_heads)
    for field in ('bos', 'eos', 'pad'):
      ids = _ids(getattr(config, f'{field}_token_id'))
      self.assertEqual(getattr(sizes, f'{field}_id'), next(iter(ids), None))
      if field == 'eos':
        self.assertEqual(sizes.stop_ids, ids)
    for field, key in zip(('embedding', 'residual', 'attention'), _FACTORS):
      factor = getattr(config, key, None)
      if factor is not None:
        self.assertEqual(getattr(sizes.details, field), factor)
    rotated = getattr(config, 'no_rope_layers', [1, 1])
    self.assertEqual(
      sizes.details.unrotated, tuple(np.flatnonzero(np.equal(rotated, 0)))
    )
    if getattr(config, 'sliding_window', None) is not None:
      if _SLIDING in getattr(config, 'layer_types', [_SLIDING]):
        self.assertGreaterEqual(config.sliding_window, sizes.max_positions)
    sin, cos = rotary.table(
      2, sizes.rotary_dim, sizes.rotary_base, sizes.rotary_scaling
    )
    angles, gain = frequencies
    np.testing.assert_allclose(np.arctan2(sin[1], cos[1]), angles, rtol=1e-5)
    np.testing.assert_allclose(np.hypot(sin, cos), gain, rtol=1e-6)

  @parameterized.parameters(*_FILES)
  def test_entries_of_any_type_are_read_or_refused(self, model_type):
    required, optional = _FILES[model_type]
    keys = [*required, *optional, *_COMMON, 'model_type', 'text_config']

    @hypothesis.settings(
      max_examples=400, deadline=None, derandomize=True, database=None
    )
    @hypothesis.given(
      _file(model_type),
      st.dictionaries(st.sampled_from(keys), _ANY, max_size=2),
      st.dictionaries(st.sampled_from([*_LLAMA3, 'type']), _ANY, max_size=2),
    )
    def check(document, changes, nested):
      document = document | changes
      if nested:
        document['rope_scaling'] = {**_LLAMA3, **nested}
      if families.matching(document) is not None:
        _read(document)

    check()

  @hypothesis.settings(deadline=None, derandomize=True, database=None)
  @hypothesis.given(st.dictionaries(st.just('eos_token_id'), _ANY))
  def test_generation_config_of_any_type_is_read_or_refused(self, document):
    sizes = hf_config.HFConfig(2, 32, 4, 48, 11, stop_ids=(3,))
    try:
      config = hf_config.add_generation(sizes, 'generation_config', document)
    except errors.CheckpointError as e:
      self.assertIn('eos_token_id', str(e))
    else:
      self.assertNotEmpty(config.stop_ids)


class TablesTest(parameterized.TestCase):
  @parameterized.product(
    name=families.convertible(), tied=(False, True), kv_heads=(0, 2)
  )
  def test_number_of_parameters_matches_transformers(
    self, name, tied, kv_heads
  ):
    family = families.FAMILIES[name]
    sizes = hf_config.HFConfig(
      3, 32, 4, 48, 11, kv_heads, 8, tied_embeddings=tied
    )
    if 'num_kv_heads' not in family.config.keys:
      sizes = dataclasses.replace(sizes, num_kv_heads=0)
    document = hf_config.document(name, sizes, family.config)
    config = transformers.AutoConfig.for_model(**document)
    with torch.device('meta'):
      model = transformers.AutoModelForCausalLM.from_config(config)
    self.assertEqual(family.num_parameters(sizes), model.num_parameters())

  @parameterized.parameters(*families.convertible())
  def test_documents_match_transformers(self, name):
    family = families.FAMILIES[name]
    sizes = hf_config.HFConfig(2, 32, 4, 48, 11, rotary_dim=8, max_positions=64)
    document = hf_config.document(name, sizes, family.config)
    config = hf_config.read('config.json', document, family.config)
    # The factor of Gemma's embedding follows from the width.
    same = {'num_kv_heads': 0, 'details': sizes.details}
    self.assertEqual(
      dataclasses.replace(config, **same), dataclasses.replace(sizes, **same)
    )
    self.assertEqual(families.matching(document), family)

  def test_written_default_of_a_window_is_read_again(self):
    # Mistral's class writes a window of 4,096, which covers this context.
    table = dataclasses.replace(
      families.FAMILIES['llama'].config,
      model_class='MistralForCausalLM',
      window=hf_config.Window(4096),
    )
    sizes = hf_config.HFConfig(2, 32, 4, 48, 11, 2, 8, max_positions=64)
    document = hf_config.document('mistral', sizes, table)
    written = transformers.AutoConfig.for_model(**document).to_dict()
    self.assertEqual(written['sliding_window'], 4096)
    self.assertEqual(hf_config.read('config.json', written, table), sizes)


if __name__ == '__main__':
  absltest.main()
