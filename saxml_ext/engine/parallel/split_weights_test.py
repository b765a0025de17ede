"""Tests split_weights on four CPU devices; tests/groups uses processes."""

import collections
import dataclasses
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import jax
import numpy as np

from saxml_ext.engine import architecture
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import sharding
from saxml_ext.engine import variables as variables_lib
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.parallel import split_weights
from saxml_ext.engine.testing import random_model

jax.config.update('jax_num_cpu_devices', 4)

_MODEL = config_lib.ModelConfig(
  num_layers=2,
  model_dim=32,
  num_heads=4,
  head_dim=16,
  hidden_dim=64,
  rotary_dim=8,
  vocab_size=301,  # The last of four parts of 128 is empty.
)
_LM_CLOUD = random_model.lm_cloud(
  num_layers=2,
  model_dim=32,
  num_heads=4,
  head_dim=8,
  hidden_dim=64,
  vocab_size=301,
)
_LLAMA = dataclasses.replace(
  _MODEL,
  rotary_dim=16,
  num_kv_heads=2,
  architecture=architecture.Architecture(
    residual=architecture.SEQUENTIAL,
    activation=architecture.SILU,
    gated=True,
    norm=architecture.RMS_NORM,
    biases=(),
  ),
)
_MESHES = ((1, 1, 1), (1, 1, 4), (1, 2, 2), (1, 4, 1), (2, 1, 2))


def _apart(variables, model):
  """Returns variables with separate queries, keys and values, as in praxis."""
  del model
  result = {}
  for name, value in variables.items():
    if name.endswith('combined_qkv.w'):
      for part, array in zip(('query', 'key', 'value'), value):
        result[name.replace('combined_qkv', part)] = array
    else:
      result[name] = value
  return result


def _quantized(variables):
  """Returns int8 matrices with scales, as `offline_quantize` stores them."""
  result = {}
  for name, value in variables.items():
    row = variables_lib.GPTJ.named(name)
    if not row.is_matrix:
      result[name] = value
      continue
    peak = np.abs(value).max(row.contracted_dims, keepdims=True)
    codes = np.rint(value * (127 / peak)).astype(np.int8)
    result[name] = codes
    scale = (peak / 127).squeeze(row.contracted_dims)
    result[name + variables_lib.SCALE_SUFFIX] = scale.astype(np.float32)
  return result


@dataclasses.dataclass(frozen=True)
class _Counting(random_model.Arrays):
  """A source that counts in `read` the elements read from each variable."""

  read: collections.Counter

  def read_part(self, name, slices):
    part = super().read_part(name, slices)
    self.read[name] += part.size
    return part


class SplitWeightsTest(parameterized.TestCase):
  @parameterized.product(
    quantization=(None, 'int8', 'int8_weights'),
    stored=('float', 'int8'),
    stacked=(False, True),
  )
  def test_parts_are_those_of_the_whole(self, quantization, stored, stacked):
    variables = random_model.variables(_MODEL)
    if stored == 'int8':
      if quantization is None:
        self.skipTest('A quantized checkpoint cannot be served in float.')
      variables = _quantized(variables)
    dtype = 'bfloat16' if quantization == 'int8_weights' else 'float32'
    form = split_weights.Form(dtype, quantization, stacked=stacked)
    whole = weights_lib.from_pax(variables, _MODEL, dtype, quantization)
    if stacked:
      whole = weights_lib.stack(whole)
    arrays = random_model.Arrays(variables)
    for shape in _MESHES:
      mesh = sharding.make_mesh(shape)
      expected = sharding.shard(mesh, sharding.pad(mesh, whole))
      got = split_weights.from_pax(arrays, _MODEL, form, mesh)
      self.assertEqual(jax.tree.structure(got), jax.tree.structure(expected))
      for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected)):
        self.assertEqual((a.dtype, a.sharding), (b.dtype, b.sharding))
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))

  @parameterized.parameters(
    (_LM_CLOUD, random_model.repeated, None, True),
    (_LM_CLOUD, random_model.repeated, 'int8_weights', False),
    (_LM_CLOUD, _apart, 'int8_weights', True),
    (_LM_CLOUD, _apart, None, False),
    (_LLAMA, random_model.repeated, 'int8_weights', True),
    (_LLAMA, _apart, None, False),
  )
  def test_families_and_forms_of_storing(
    self, model, stored, quantization, stacked
  ):
    variables = stored(random_model.variables(model), model)
    form = split_weights.Form('float32', quantization, False, stacked)
    whole = weights_lib.from_pax(
      variables, model, 'float32', quantization, False
    )
    if stacked:
      whole = weights_lib.stack(whole)
    arrays = random_model.Arrays(variables)
    for shape in ((1, 1, 4), (1, 2, 2)):
      mesh = sharding.make_mesh(shape)
      expected = sharding.shard(mesh, sharding.pad(mesh, whole))
      got = split_weights.from_pax(arrays, model, form, mesh)
      jax.tree.map(np.testing.assert_array_equal, got, expected)

  @parameterized.product(
    quantization=(None, 'int8'), stored=('float', 'int8'), stacked=(False, True)
  )
  def test_heads_are_padded_to_the_mesh(self, quantization, stored, stacked):
    model = dataclasses.replace(_MODEL, num_heads=6)
    variables = random_model.variables(model)
    if stored == 'int8':
      if quantization is None:
        self.skipTest('A quantized checkpoint cannot be served in float.')
      variables = _quantized(variables)
    whole = weights_lib.from_pax(variables, model, 'float32', quantization)
    if stacked:
      whole = weights_lib.stack(whole)
    mesh = sharding.make_mesh((1, 1, 4))
    expected = sharding.shard(mesh, sharding.pad(mesh, whole))
    got = split_weights.from_pax(
      random_model.Arrays(variables),
      model,
      split_weights.Form('float32', quantization, stacked=stacked),
      mesh,
    )
    jax.tree.map(np.testing.assert_array_equal, got, expected)
    layers = got.layers if stacked else got.layers[0]
    qkv = layers.qkv if quantization is None else layers.qkv.scale
    self.assertEqual(qkv.shape[stacked], 8)

  def test_a_head_in_float_beside_int8_matrices(self):
    variables = random_model.variables(_MODEL)
    mesh = sharding.make_mesh((1, 1, 4))
    form = split_weights.Form(quantization='int8', quantize_head=False)
    arrays = random_model.Arrays(variables)
    head = split_weights.from_pax(arrays, _MODEL, form, mesh).head
    self.assertEqual(head.shape, (32, 512))
    np.testing.assert_array_equal(
      np.asarray(head)[:, :301],
      variables['params.lm.softmax.logits_ffn.linear.w'],
    )

  @parameterized.parameters(
    ('float', None, {}),
    # These are read whole, because their scales depend on whole rows.
    ('float', 'int8', {'post.w': 1, 'ffn_layer2.linear.w': 1}),
    ('int8', 'int8', {}),
  )
  def test_reads_what_its_devices_hold(self, stored, quantization, more):
    """Runs as the process that has only the second of four devices."""
    variables = random_model.variables(_MODEL)
    if stored == 'int8':
      variables = _quantized(variables)
    counted = _Counting(variables, collections.Counter())
    mesh = sharding.make_mesh((1, 1, 4))
    real = jax.sharding.NamedSharding.addressable_devices_indices_map

    def own(self, shape):
      indices = real(self, shape)
      second = mesh.devices.flat[1]
      return {second: indices[second]}

    with mock.patch.object(
      jax.sharding.NamedSharding, 'addressable_devices_indices_map', own
    ):
      parts = split_weights._Parts(
        counted, _MODEL, split_weights.Form(quantization=quantization), mesh
      )
      for row, layer in variables_lib.GPTJ.entries(_MODEL):
        parts.leaf(row.field, layer)
    for name, value in variables.items():
      matrix = name.removesuffix(variables_lib.SCALE_SUFFIX)
      row = variables_lib.GPTJ.named(matrix)
      axes = row.axes if matrix == name else row.outputs
      share = 1 / 4 if {'heads', 'kv_heads', 'hidden'} & set(axes) else 1
      if 'vocab' in axes:
        share = 128 / 301
      share = next((s for end, s in more.items() if name.endswith(end)), share)
      self.assertEqual(counted.read[name], round(share * value.size), name)

  def test_other_models_are_refused(self):
    variables = random_model.variables(_MODEL)
    mesh = sharding.make_mesh((1, 1, 4))
    form = split_weights.Form()
    arrays = random_model.Arrays(variables)
    wider = dataclasses.replace(_MODEL, hidden_dim=128)
    with self.assertRaisesRegex(ValueError, r'\(32, 64\),.* require \(32, 128'):
      split_weights.from_pax(arrays, wider, form, mesh)
    arrays = random_model.Arrays(_quantized(variables))
    with self.assertRaisesRegex(ValueError, 'is int8'):
      split_weights.from_pax(arrays, _MODEL, form, mesh)


if __name__ == '__main__':
  absltest.main()
