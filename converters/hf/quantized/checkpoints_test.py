"""Tests of reading quantized checkpoints."""

from collections.abc import Callable, Mapping
import functools
import json
import os
import tracemalloc
from typing import TypeAlias

from absl.testing import absltest
from absl.testing import parameterized
import ml_dtypes
import numpy as np

from converters.convert import model_source
from converters.hf import checkpoint
from converters.testing import quantized_files
from saxml_ext.pax import errors

_Q = 'model.layers.0.self_attn.q_proj.'
_O = 'model.layers.1.self_attn.o_proj.'
_Tensors: TypeAlias = dict[str, np.ndarray]


# Random numbers take more time than the reader.
_tensors = functools.cache(quantized_files.tensors)


def _set(part: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable:
  """Returns a function that changes a tensor of the first layer's queries."""

  def apply(tensors: _Tensors) -> None:
    tensors[_Q + part] = np.ascontiguousarray(change(tensors[_Q + part]))

  return apply


def _remove(part: str) -> Callable[[_Tensors], None]:
  return lambda tensors: tensors.pop(_Q + part)


def _text(text: str) -> Callable[[np.ndarray], np.ndarray]:
  return lambda _: np.frombuffer(text.encode(), np.uint8)


_STATE = 'weight.quant_state.bitsandbytes__nf4'


class CheckpointsTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.root = self.create_tempdir().full_path

  def open(
    self, case: str, change: Callable[[_Tensors], object] = len
  ) -> tuple[checkpoint.HFCheckpoint, Mapping[str, np.ndarray]]:
    """Returns a changed checkpoint, and the tensors that it should have."""
    stored, plain = map(dict, _tensors(case))
    change(stored)
    config = quantized_files.CASES[case].config
    path = os.path.join(self.root, case)
    return checkpoint.HFCheckpoint(
      quantized_files.save(path, stored, config)
    ), plain

  @parameterized.parameters(*quantized_files.CASES)
  def test_matrices_are_those_of_the_library(self, case):
    opened, plain = self.open(case)
    self.assertEqual(opened.shapes, {n: x.shape for n, x in plain.items()})
    self.assertNotEmpty(opened.quantization)
    for name, values in plain.items():
      np.testing.assert_array_equal(opened.read(name), values, name)
      region = np.s_[1:3, 5:7] if values.ndim > 1 else np.s_[1:3]
      opened.release(name)
      np.testing.assert_array_equal(opened.read(name, region), values[region])

  @parameterized.parameters('fp8_block', 'gptq')
  def test_conversion_gives_the_variables_of_the_float_model(self, case):
    opened, plain = self.open(case)
    path = quantized_files.save(os.path.join(self.root, 'float'), dict(plain))
    source, expected = map(model_source.ModelSource, (opened, path))
    self.assertEqual(
      [v.name for v in source.variables], [v.name for v in expected.variables]
    )
    for ours, theirs in zip(source.variables, expected.variables, strict=True):
      np.testing.assert_array_equal(
        source.build(ours, np.dtype(np.float32)),
        expected.build(theirs, np.dtype(np.float32)),
      )

  @parameterized.parameters('fp8_tensor', 'gptq', 'bitsandbytes_nf4')
  def test_float_type_is_that_of_the_other_matrices(self, case):
    def halve(tensors: _Tensors) -> None:
      for name, x in tensors.items():
        if not name.startswith('model.layers.'):
          tensors[name] = x.astype(ml_dtypes.bfloat16)

    self.assertEqual(self.open(case, halve)[0].float_type, 'bfloat16')

  def test_layers_may_stay_in_floating_point(self):
    values = np.full((256, 256), 0.5, np.float32)

    def restore(tensors: _Tensors) -> None:
      for name in [name for name in tensors if name.startswith(_O)]:
        del tensors[name]
      tensors[_O + 'weight'] = values

    for case in ('compressed_packed', 'gptq', 'bitsandbytes_nf4'):
      opened, _ = self.open(case, restore)
      np.testing.assert_array_equal(opened.read(_O + 'weight'), values)

  def test_scales_of_activations_and_of_the_cache_are_ignored(self):
    def add(tensors: _Tensors) -> None:
      for name in ('k_scale', 'v_scale'):
        tensors[f'model.layers.0.self_attn.{name}'] = np.ones(1, np.float32)
      tensors[_Q + 'output_scale'] = np.ones(1, np.float32)

    opened, plain = self.open('compressed_float_channel', add)
    self.assertEqual(set(opened.shapes), set(plain))

  def test_biases_of_zero_are_ignored(self):
    name = _Q + 'bias'
    opened, _ = self.open(
      'gptq', lambda t: t.update({name: np.zeros(256, np.float32)})
    )
    self.assertNotIn(name, opened.shapes)
    opened, _ = self.open(
      'gptq', lambda t: t.update({name: np.ones(256, np.float32)})
    )
    with self.assertRaisesRegex(errors.CheckpointError, f'{name}: unexpected'):
      model_source.ModelSource(opened)

  def test_packed_codes_are_integers(self):
    stored, _ = _tensors('compressed_packed_channel')
    config = quantized_files.compressed('mixed-precision', type='float')
    path = quantized_files.save(
      os.path.join(self.root, 'mixed'), stored, config
    )
    with self.assertRaisesRegex(
      errors.CheckpointError, 'weight_packed is int32, but config_groups has no'
    ):
      checkpoint.HFCheckpoint(path)

  def test_stored_code_of_zero_wraps(self):
    def wrap(tensors: _Tensors) -> None:
      tensors[_Q + 'qzeros'] = np.full_like(tensors[_Q + 'qzeros'], -1)

    opened, _ = self.open('gptq', wrap)
    self.assertGreaterEqual(opened.read(_Q + 'weight').min(), 0)

  @parameterized.parameters('bitsandbytes_nf4', 'bitsandbytes_nf4_nested')
  def test_claimed_blocks_take_no_memory(self, case):
    def claim(tensors: _Tensors) -> None:
      state = json.loads(tensors[_Q + _STATE].tobytes())
      # One block is larger than the matrix, and so is one block of scales.
      state |= {'blocksize': 2**30, 'nested_blocksize': 2**30}
      text = json.dumps(state).encode()
      tensors[_Q + _STATE] = np.frombuffer(text, np.uint8)
      for name in ('absmax', 'nested_absmax'):
        if (full := f'{_Q}weight.{name}') in tensors:
          tensors[full] = tensors[full][:1]

    opened, _ = self.open(case, claim)
    tracemalloc.start()
    self.addCleanup(tracemalloc.stop)
    matrix = opened.read(_Q + 'weight')
    self.assertLess(tracemalloc.get_traced_memory()[1], 8 * matrix.nbytes)
    self.assertTrue(np.isfinite(matrix).all())

  def test_storage_in_a_float_type(self):
    as_halves = _set('weight', lambda x: x.reshape(-1).view(np.float16))
    opened, plain = self.open('bitsandbytes_nf4', as_halves)
    np.testing.assert_array_equal(
      opened.read(_Q + 'weight'), plain[_Q + 'weight']
    )

  @parameterized.parameters(
    ('fp8_tensor', _remove('weight_scale'), 'tensor {}weight_scale is missing'),
    (
      'fp8_block',
      _set('weight_scale_inv', lambda x: x[:, :1]),
      r'{}weight_scale_inv is float32\[3, 1\]. Expected .* of shape \[3, 2\]',
    ),
    (
      'fbgemm_fp8',
      _set('weight_scale', lambda x: x.astype(np.int32)),
      r'weight_scale is int32\[256, 1\]. Expected float16 or bfloat16',
    ),
    (
      'compressed_int_channel',
      _set('weight', lambda x: x.view(ml_dtypes.float8_e4m3fn)),
      'q_proj.weight is float8_e4m3fn, but config_groups has no such type',
    ),
    (
      'compressed_int_asymmetric',
      _remove('weight_zero_point'),
      'weight_zero_point is missing',
    ),
    (
      'compressed_packed',
      _set('weight_shape', lambda x: x * -1),
      r'weight_shape is \[-256, -256\]. Expected the sizes',
    ),
    (
      'compressed_packed',
      _set('weight_shape', lambda x: x << 20),
      r'weight_packed is int32\[256, 32\]. Expected',
    ),
    ('compressed_packed', _remove('weight_shape'), 'weight_shape is missing'),
    ('gptq_order', _remove('g_idx'), 'tensor {}g_idx is missing'),
    ('gptq', _remove('qzeros'), 'tensor {}qzeros is missing'),
    (
      'gptq',
      _set('scales', lambda x: x[:1]),
      r'scales is float16\[1, 256\]. Expected .* of shape \[2, 256\]',
    ),
    ('gptq', _set('qweight', lambda x: x[:0]), r'has the shape \[0, 256\]'),
    ('awq', _set('qzeros', lambda x: x[:, :3]), r'qzeros is int32\[4, 3\]'),
    ('bitsandbytes_nf4', _remove(_STATE), f'{_STATE} or .* is missing'),
    ('bitsandbytes_int8', _remove('SCB'), 'SCB is missing'),
    (
      'bitsandbytes_int8',
      _set('weight_format', lambda x: x + 1),
      'weight_format is 1. Expected 0, which means rows',
    ),
    (
      'bitsandbytes_nf4',
      _set(_STATE, _text('{')),
      'does not describe a matrix',
    ),
    (
      'bitsandbytes_nf4',
      _set(_STATE, lambda x: np.zeros(1 << 20, np.uint8)),
      'does not describe a matrix',
    ),
    (
      'bitsandbytes_nf4',
      _set(_STATE, _text('{"blocksize":64,"shape":[2147483646,2147483646]}')),
      r'weight is uint8\[32768, 1\]. Expected 2305843004918726658 bytes',
    ),
    (
      'bitsandbytes_nf4',
      _set(_STATE, _text('{"blocksize":0,"shape":[256,256]}')),
      'a size is out of range',
    ),
    (
      'bitsandbytes_nf4_nested',
      _remove('weight.nested_absmax'),
      'nested_absmax is missing',
    ),
  )
  def test_wrong_tensors_are_named(self, case, change, message):
    message = message.replace('{}', _Q)
    with self.assertRaisesRegex(errors.CheckpointError, message) as caught:
      self.open(case, change)
    self.assertIn('Download the checkpoint again', str(caught.exception))

  @parameterized.parameters(
    ('gptq_order', 'g_idx', 'groups from 0 to 4. Expected 0 to 3'),
    ('compressed_packed_order', 'weight_g_idx', 'groups from 0 to 4'),
  )
  def test_unknown_groups_are_named(self, case, part, message):
    opened, _ = self.open(case, _set(part, lambda x: x + (x == 3)))
    with self.assertRaisesRegex(errors.CheckpointError, message):
      opened.read(_Q + 'weight')

  def test_values_that_are_not_finite_are_named(self):
    opened, _ = self.open('gptq', _set('scales', lambda x: x * np.inf))
    source = model_source.ModelSource(opened)
    with self.assertRaisesRegex(
      errors.CheckpointError, 'q_proj.weight has the'
    ):
      for variable in source.variables:
        source.build(variable, np.dtype(np.float32))


if __name__ == '__main__':
  absltest.main()
