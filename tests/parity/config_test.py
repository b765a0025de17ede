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
from tests.parity import config_files

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
  def test_files_has_every_model_type(self):
    self.assertCountEqual(config_files.FILES, families.model_types())

  @parameterized.parameters(*config_files.FILES)
  def test_values_match_transformers(self, model_type):
    compared = []

    @hypothesis.settings(
      max_examples=400, deadline=None, derandomize=True, database=None
    )
    @hypothesis.given(config_files.document(model_type))
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
    heads = config.num_attention_heads
    # A config keeps entries that its class does not have.
    if hasattr(type(config)(), 'num_key_value_heads'):
      heads = config.num_key_value_heads
    self.assertEqual(sizes.kv_heads, heads)
    keys = families.matching(document).config.keys
    self.assertEqual(sizes.ln_epsilon, getattr(config, keys['ln_epsilon']))
    for field in ('bos', 'eos', 'pad'):
      ids = _ids(getattr(config, f'{field}_token_id'))
      self.assertEqual(getattr(sizes, f'{field}_id'), next(iter(ids), None))
      if field == 'eos':
        self.assertEqual(sizes.stop_ids, ids)
    for field, key in zip(
      ('embedding', 'residual', 'attention'), config_files.FACTORS
    ):
      factor = getattr(config, key, None)
      if factor is not None:
        self.assertEqual(getattr(sizes.details, field), factor)
    rotated = getattr(config, 'no_rope_layers', [1, 1])
    self.assertEqual(
      sizes.details.unrotated, tuple(np.flatnonzero(np.equal(rotated, 0)))
    )
    if getattr(config, 'sliding_window', None) is not None:
      if config_files.SLIDING in getattr(
        config, 'layer_types', [config_files.SLIDING]
      ):
        self.assertGreaterEqual(config.sliding_window, sizes.max_positions)
    sin, cos = rotary.table(
      2, sizes.rotary_dim, sizes.rotary_base, sizes.rotary_scaling
    )
    angles, gain = frequencies
    np.testing.assert_allclose(np.arctan2(sin[1], cos[1]), angles, rtol=1e-5)
    np.testing.assert_allclose(np.hypot(sin, cos), gain, rtol=1e-6)

  @parameterized.parameters(*config_files.FILES)
  def test_entries_of_any_type_are_read_or_refused(self, model_type):
    required, optional = config_files.FILES[model_type]
    keys = [
      *required,
      *optional,
      *config_files.COMMON,
      'model_type',
      'text_config',
    ]

    @hypothesis.settings(
      max_examples=400, deadline=None, derandomize=True, database=None
    )
    @hypothesis.given(
      config_files.document(model_type),
      st.dictionaries(st.sampled_from(keys), _ANY, max_size=2),
      st.dictionaries(
        st.sampled_from([*config_files.LLAMA3, 'type']), _ANY, max_size=2
      ),
    )
    def check(document, changes, nested):
      document = document | changes
      if nested:
        document['rope_scaling'] = {**config_files.LLAMA3, **nested}
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
