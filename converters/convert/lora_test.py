"""Tests of merging LoRA adapters."""

import json
import os
from typing import Any

from absl.testing import absltest
from absl.testing import parameterized
import ml_dtypes
import numpy as np
from safetensors import numpy as safetensors_numpy

from converters.convert import conversion
from converters.convert import lora
from converters.convert import model_source
from converters.convert import sources
from converters.testing import small_models
from saxml_ext.pax import errors
from saxml_ext.pax.testing import checkpoints

_RANK, _ALPHA = 4, 10
_PREFIX = 'base_model.model.'
_TARGETS = ('q_proj', 'out_proj', 'fc_in', 'fc_out', 'lm_head')
_Q = 'transformer.h.1.attn.q_proj'
_A, _B = f'{_PREFIX}{_Q}.lora_A.weight', f'{_PREFIX}{_Q}.lora_B.weight'
_EMBEDDING = 'transformer.wte'


def _adapter() -> dict[str, np.ndarray]:
  """Returns the tensors of an adapter of the small GPT-J."""
  rng = np.random.default_rng(7)
  tensors = {}
  for name, value in small_models.state_dict().items():
    module = name.removesuffix('.weight')
    if name.endswith('.weight') and module.endswith(_TARGETS):
      outputs, inputs = value.shape
      for part, shape in (('A', (_RANK, inputs)), ('B', (outputs, _RANK))):
        tensors[f'{_PREFIX}{module}.lora_{part}.weight'] = rng.standard_normal(
          shape
        ).astype(np.float32)
  return tensors


def _settings(**changes: Any) -> dict[str, Any]:
  """Returns adapter_config.json as PEFT 0.21 writes it."""
  return {
    'alora_invocation_tokens': None,
    'alpha_pattern': {},
    'arrow_config': None,
    'auto_mapping': None,
    'base_model_name_or_path': 'gpt-j',
    'bias': 'none',
    'corda_config': None,
    'ensure_weight_tying': False,
    'eva_config': None,
    'exclude_modules': None,
    'fan_in_fan_out': False,
    'inference_mode': True,
    'init_lora_weights': True,
    'kasa_config': None,
    'layer_replication': None,
    'layers_pattern': None,
    'layers_to_transform': None,
    'loftq_config': {},
    'lora_alpha': _ALPHA,
    'lora_bias': False,
    'lora_dropout': 0.1,
    'megatron_config': None,
    'megatron_core': 'megatron.core',
    'modules_to_save': None,
    'peft_type': 'LORA',
    'peft_version': '0.21.2',
    'qalora_group_size': 16,
    'r': _RANK,
    'rank_pattern': {},
    'revision': None,
    'target_modules': list(_TARGETS),
    'target_parameters': None,
    'task_type': 'CAUSAL_LM',
    'trainable_token_indices': None,
    'use_bdlora': None,
    'use_dora': False,
    'use_qalora': False,
    'use_rslora': False,
    **changes,
  }


class LoraTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.root = self.create_tempdir().full_path
    self.base = small_models.save(f'{self.root}/hf')

  def save(
    self, tensors: dict[str, np.ndarray] | None = None, **settings: Any
  ) -> str:
    """Writes an adapter; returns its directory."""
    directory = f'{self.root}/adapter'
    os.makedirs(directory, exist_ok=True)
    with open(f'{directory}/adapter_config.json', 'w') as file:
      json.dump(_settings(**settings), file)
    safetensors_numpy.save_file(
      _adapter() if tensors is None else tensors,
      f'{directory}/adapter_model.safetensors',
    )
    return directory

  def opened(self, *args: Any, **settings: Any) -> lora.MergedCheckpoint:
    return lora.MergedCheckpoint(self.base, self.save(*args, **settings))

  def assertRefused(self, message: str, *args: Any, **settings: Any) -> None:
    with self.assertRaisesRegex(errors.CheckpointError, message):
      self.opened(*args, **settings)

  @parameterized.parameters(
    ({}, _ALPHA / _RANK), ({'use_rslora': True}, _ALPHA / _RANK**0.5)
  )
  def test_adds_the_scaled_product(self, settings, scale):
    merged, adapter = self.opened(**settings), _adapter()
    for name, value in small_models.state_dict().items():
      module = _PREFIX + name.removesuffix('.weight')
      if f'{module}.lora_A.weight' in adapter:
        product = (
          adapter[f'{module}.lora_B.weight']
          @ adapter[f'{module}.lora_A.weight']
        )
        value = value + scale * product
        self.assertGreater(np.abs(product).max(), 0.1)
      np.testing.assert_allclose(merged.read(name), value, rtol=0, atol=1e-5)
    region = np.s_[3:9, 2:5]
    np.testing.assert_allclose(
      merged.read(f'{_Q}.weight', region),
      merged.read(f'{_Q}.weight')[region],
      rtol=0,
      atol=1e-5,
    )

  @parameterized.parameters(np.float16, ml_dtypes.bfloat16, np.float64)
  def test_other_types_are_merged_in_float32(self, dtype):
    tensors = {
      name: value.astype(dtype)
      for name, value in small_models.state_dict().items()
    }
    small_models.save(self.base, tensors)
    adapter = {name: v.astype(dtype) for name, v in _adapter().items()}
    merged = self.opened(adapter).read(f'{_Q}.weight')
    expected = tensors[f'{_Q}.weight'].astype(np.float32)
    expected += (
      (_ALPHA / _RANK)
      * adapter[_B].astype(np.float32)
      @ adapter[_A].astype(np.float32)
    )
    self.assertEqual(merged.dtype, np.float32)
    np.testing.assert_allclose(merged, expected, rtol=0, atol=1e-5)

  def test_embedding_is_merged(self):
    rng = np.random.default_rng(1)
    module = f'{_PREFIX}{_EMBEDDING}'
    a = rng.standard_normal((_RANK, small_models.VOCAB)).astype(np.float32)
    b = rng.standard_normal((small_models.DIM, _RANK)).astype(np.float32)
    tensors = {
      f'{module}.lora_embedding_A': a,
      f'{module}.lora_embedding_B': b,
      # PEFT also writes the embedding itself.
      f'{module}.base_layer.weight': np.ones(
        (small_models.VOCAB, small_models.DIM), np.float32
      ),
    }
    merged = self.opened(tensors, target_modules=['wte'])
    np.testing.assert_allclose(
      merged.read(f'{_EMBEDDING}.weight', np.s_[2:7, :]),
      1 + (_ALPHA / _RANK) * (b @ a).T[2:7],
      rtol=0,
      atol=1e-5,
    )

  @parameterized.parameters('lm_head.', 'lm_head.modules_to_save.')
  def test_saved_modules_replace_tensors(self, prefix):
    value = np.full(small_models.VOCAB, 3, np.float32)
    tensors = {f'{_PREFIX}{prefix}bias': value}
    merged = self.opened(
      tensors, target_modules=[], modules_to_save=['lm_head']
    )
    np.testing.assert_array_equal(merged.read('lm_head.bias'), value)

  def test_resume_and_bytes_depend_on_the_adapter(self):
    adapter = self.save()
    merged = sources.open_checkpoint(self.base, adapter)
    pax = f'{self.root}/pax'
    conversion.convert(merged, pax, 'float32')
    again = sources.open_checkpoint(self.base, adapter)
    conversion.convert(again, f'{self.root}/again', 'float32')
    for name, value in checkpoints.read_variables(pax).items():
      np.testing.assert_array_equal(
        value, checkpoints.read_variables(f'{self.root}/again')[name]
      )
    self.save(lora_alpha=3)
    other = sources.open_checkpoint(self.base, adapter)
    with self.assertRaisesRegex(errors.CheckpointError, 'exists'):
      conversion.convert(other, pax, 'float32', resume=True)

  @parameterized.parameters(
    ({'peft_type': 'LOHA'}, "peft_type is 'LOHA'. Supported: LORA. Merge this"),
    ({'peft_type': None}, "peft_type is 'None'. Supported: LORA."),
    ({'use_dora': True}, "use_dora is 'True'. Supported: none."),
    ({'bias': 'lora_only'}, "bias is 'lora_only'. Supported: none."),
    ({'lora_bias': True}, "lora_bias is 'True'"),
    ({'fan_in_fan_out': True}, "fan_in_fan_out is 'True'"),
    ({'rank_pattern': {'q_proj': 8}}, 'rank_pattern is "{\'q_proj\': 8}"'),
    ({'alpha_pattern': {'q_proj': 8}}, 'alpha_pattern is'),
    ({'layer_replication': [[0, 4]]}, 'layer_replication is'),
    ({'init_lora_weights': 'pissa'}, "init_lora_weights is 'pissa'"),
    ({'new_method': {'a': 1}}, 'new_method is'),
    ({'r': 0}, "r is '0'. Expected a positive integer"),
    ({'r': True}, "r is 'True'. Expected a positive integer"),
    ({'lora_alpha': '16'}, 'lora_alpha is "16". Expected a number'),
    ({'lora_alpha': float('nan')}, 'lora_alpha is NaN. Expected a number'),
    ({'use_rslora': 'yes'}, "use_rslora is 'yes'. Expected true or false"),
    ({'r': 8}, r'lora_B.weight has shape \[11, 4\]. Expected \[11, 8\]'),
  )
  def test_settings_are_refused(self, settings, message):
    self.assertRefused(message, **settings)

  @parameterized.named_parameters(
    (
      'unknown_module',
      {f'{_PREFIX}transformer.h.9.attn.q_proj.lora_A.weight': _A},
      r'changes transformer.h.9.attn.q_proj.weight, which the model does not',
    ),
    ('no_prefix', {'lora_A.weight': _A}, 'lora_A.weight is not a name that'),
    (
      'new_head',
      {f'{_PREFIX}score.weight': _A},
      'score.weight changes score.weight, which the model does not have',
    ),
    (
      'magnitudes',
      {f'{_PREFIX}{_Q}.lora_magnitude_vector': _A},
      'lora_magnitude_vector, which the model does not have',
    ),
  )
  def test_names_are_refused(self, more, message):
    adapter = _adapter()
    more = {name: adapter[old] for name, old in more.items()}
    pairs = {name.replace('_A', '_B'): value for name, value in more.items()}
    self.assertRefused(message, adapter | pairs | more)

  @parameterized.parameters(
    (_A, (_RANK, 15), r'has shape \[4, 15\]. Expected \[4, 16\]'),
    (_A, (_RANK, 16, 1), r'has shape \[4, 16, 1\]. Expected \[4, 16\]'),
    (_B, (17, _RANK), r'has shape \[17, 4\]. Expected \[16, 4\]'),
    (
      f'{_PREFIX}lm_head.bias',
      (12,),
      r'lm_head.bias has shape \[12\]. Expected \[11\]',
    ),
    (
      f'{_PREFIX}transformer.ln_f.lora_A.weight',
      (_RANK, 16),
      'has no pair lora_A.weight and lora_B.weight',
    ),
  )
  def test_shapes_are_refused(self, name, shape, message):
    self.assertRefused(message, _adapter() | {name: np.ones(shape, np.float32)})

  def test_norms_have_no_pairs(self):
    module = f'{_PREFIX}transformer.ln_f'
    pair = {f'{module}.lora_{x}.weight': _adapter()[_A] for x in 'AB'}
    self.assertRefused(
      'changes transformer.ln_f.weight, which is not a matrix', pair
    )

  def test_integers_are_refused(self):
    adapter = _adapter()
    adapter[_A] = adapter[_A].astype(np.int8)
    self.assertRefused('lora_A.weight has type int8. Expected one', adapter)
    tensors = small_models.state_dict()
    tensors[f'{_Q}.weight'] = tensors[f'{_Q}.weight'].astype(np.int8)
    small_models.save(self.base, tensors)
    source = model_source.ModelSource(self.opened())
    with self.assertRaisesRegex(errors.CheckpointError, 'has type int8'):
      for variable in source.variables:
        source.build(variable, np.dtype(np.float32))

  def test_incomplete_adapters_are_refused(self):
    adapter = _adapter()
    del adapter[_A], adapter[_B]
    self.assertRefused(f'has no tensors for {_Q}.weight, which', adapter)
    self.opened(adapter, layers_to_transform=[0])
    self.assertRefused('has no tensors for w_proj', target_modules=['w_proj'])
    del (adapter := _adapter())[_B]
    self.assertRefused('has no pair lora_A.weight and lora_B', adapter)

  def test_tied_embeddings_are_refused(self):
    tensors = small_models.state_dict()
    del tensors['lm_head.weight']
    small_models.save(self.base, tensors, tie_word_embeddings=True)
    name = f'{_PREFIX}{_EMBEDDING}.weight'
    value = np.ones((small_models.VOCAB, small_models.DIM), np.float32)
    self.assertRefused(
      'which is also the head of this model', {name: value}, target_modules=[]
    )

  def test_bad_values_name_the_adapter(self):
    adapter = _adapter()
    adapter[_A][1, 2] = np.nan
    source = model_source.ModelSource(self.opened(adapter))
    with self.assertRaisesRegex(
      errors.CheckpointError,
      rf'with .*adapter_model.safetensors: tensor {_Q}.weight has the value nan',
    ):
      for variable in source.variables:
        source.build(variable, np.dtype(np.float32))

  def test_missing_files_are_refused(self):
    with self.assertRaisesRegex(
      errors.CheckpointError, 'nowhere is not a directory. Expected one with'
    ):
      lora.MergedCheckpoint(self.base, f'{self.root}/nowhere')
    adapter = self.save()
    os.unlink(f'{adapter}/adapter_model.safetensors')
    with self.assertRaisesRegex(
      errors.CheckpointError, 'adapter_model.safetensors is missing'
    ):
      lora.MergedCheckpoint(self.base, adapter)


if __name__ == '__main__':
  absltest.main()
