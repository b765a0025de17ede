import functools

from absl.testing import absltest
from absl.testing import parameterized
import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.tpu_estimate.compiled import costs
from benchmarks.tpu_estimate.compiled import hlo_costs
from benchmarks.tpu_estimate.compiled import kernel_costs
from saxml_ext.engine.kernels.tpu import prefill_attention
from saxml_ext.engine.kernels.tpu import rows

# A call in XLA's format, with the shapes of result and operand, and a name.
_CALL = """\
ENTRY %main (x: f32[1]) -> f32[1] {{
  %x = {operand}{{:T(8,128)}} parameter(0)
  ROOT %out = ({results}) custom-call(%x), custom_call_target="tpu_custom_call", metadata={{op_name="jit(f)/{name}/pallas_call"}}
}}
"""
# This call has 2 layers, 3 slots of 2 beams and 1 head of width 8. Prompts have
# 512 keys in 2 blocks. Suffixes have 2 blocks of 16 keys. Each slot has 4
# blocks.
_BEAMS = """\
ENTRY %main (a: s32[1]) -> f32[3,2,8] {
  %count = s32[1]{0:T(128)} parameter(0)
  %query = s32[13]{0:T(128)} parameter(1)
  %x = f32[3,2,8]{2,1,0:T(2,128)S(1)} parameter(2)
  %mask = s8[3,2,2,16]{3,2,1,0:T(4,128)(4,1)S(1)} parameter(3)
  %pk = s8[2,3,1,8,512]{4,3,2,1,0:T(8,128)(4,1)} parameter(4)
  %pks = f32[2,3,1,512]{3,2,1,0:T(1,128)} parameter(5)
  %pv = s8[2,3,1,512,8]{4,3,2,1,0:T(8,128)(4,1)} parameter(6)
  %pvs = f32[2,3,1,512]{3,2,1,0:T(1,128)} parameter(7)
  %sk = s8[2,3,1,32,8]{4,3,2,1,0:T(8,128)(4,1)} parameter(8)
  %sks = f32[2,3,1,32]{3,2,1,0:T(1,128)} parameter(9)
  %sv = s8[2,3,1,32,8]{4,3,2,1,0:T(8,128)(4,1)} parameter(10)
  %svs = f32[2,3,1,32]{3,2,1,0:T(1,128)} parameter(11)
  ROOT %out = f32[3,2,8]{2,1,0:T(2,128)S(1)} custom-call(%count, %query, %x, %mask, %pk, %pks, %pv, %pvs, %sk, %sks, %sv, %svs), custom_call_target="tpu_custom_call", metadata={op_name="jit(f)/attend_beams/pallas_call"}
}
"""
_DTYPES = {'bfloat16': 'bf16', 'float32': 'f32', 'int8': 's8'}


def _shape(x) -> str:
  return f'{_DTYPES[str(x.dtype)]}{list(x.shape)}'.replace(' ', '')


def _pallas_call(function, *shapes):
  """Returns the only kernel call that a function makes."""
  jaxpr = jax.make_jaxpr(function)(*shapes)
  (equation,) = [e for e in jaxpr.eqns if e.primitive.name == 'pallas_call']
  return equation


def _text(equation, name: str) -> str:
  return _CALL.format(
    operand=_shape(equation.invars[0].aval),
    results=', '.join(f'{_shape(x.aval)}{{}}' for x in equation.outvars),
    name=name,
  )


def _work(text: str) -> kernel_costs.Work:
  works: list[kernel_costs.Work] = []

  def seen(i, within, traffic) -> None:
    del traffic
    work = kernel_costs.work_of(i, within)
    assert work is not None
    works.append(work)

  hlo_costs.read(text, describe=seen)
  (work,) = works
  return work


def _call(text: str):
  program = hlo_costs.read(text, describe=kernel_costs.describe)
  (call,) = program.once.kernels
  return call, program


def _attend(batch: int, length: int, heads: int, kv_dtype: str):
  angles = np.zeros((length, 32), np.float32)
  attend = functools.partial(
    prefill_attention.attend,
    sin=angles,
    cos=angles,
    head_dim=256,
    kv_dtype=kv_dtype,
  )
  qkv = jax.ShapeDtypeStruct((batch, length, heads * 3 * 256), jnp.bfloat16)
  return _pallas_call(attend, qkv)


class KernelsTest(parameterized.TestCase):
  @parameterized.parameters(128, 512, 480, 1920)
  def test_steps_of_rows_are_the_grid_of_the_kernel(self, count: int):
    x = jax.ShapeDtypeStruct((count, 1024), jnp.bfloat16)
    equation = _pallas_call(rows.quantize, x)
    work = _work(_text(equation, 'quantize_rows'))
    (steps,) = equation.params['grid_mapping'].grid
    expected = kernel_costs.Work('quantize_rows bf16[1024]', steps, 0)
    self.assertEqual(work, expected)

  @parameterized.parameters(
    ('normalize_rows', True), ('normalize_rms_rows', False)
  )
  def test_fewer_rows_than_a_block_take_their_share(self, name, has_bias):
    x = jax.ShapeDtypeStruct((96, 4096), jnp.float32)
    norm = jax.ShapeDtypeStruct((4096,), jnp.float32)
    normalize = functools.partial(rows.normalize, epsilon=1e-5)
    equation = _pallas_call(normalize, x, norm, norm if has_bias else None)
    work = _work(_text(equation, name))
    self.assertEqual(work.steps, 96 / 128)
    code = kernel_costs.counted()[work.key]
    call, _ = _call(_text(equation, name))
    self.assertEqual(call.bundles, code.outside + 0.75 * code.step)

  @parameterized.parameters(
    (1, 1024, 4, 'int8'), (2, 1920, 3, 'bfloat16'), (1, 128, 1, 'int8')
  )
  def test_steps_of_attention_are_the_grid_of_the_kernel(
    self, batch: int, length: int, heads: int, kv_dtype: str
  ):
    equation = _attend(batch, length, heads, kv_dtype)
    grid = equation.params['grid_mapping'].grid
    work = _work(_text(equation, 'prefill_attention'))
    self.assertEqual(work.steps, np.prod(grid))
    self.assertEqual(work.inner, batch * heads * sum(range(grid[-1])))
    self.assertIn(work.key, kernel_costs.counted())

  def test_bundles_are_of_all_steps_and_bytes_are_those_in_hbm(self):
    call, program = _call(
      _text(_attend(1, 1024, 4, 'int8'), 'prefill_attention')
    )
    code = kernel_costs.counted()['prefill_attention bf16[512,256] s8']
    self.assertEqual(
      call.bundles, code.outside + 4 * (2 * code.step + code.inner)
    )
    # The operand and the results are in HBM. The text leaves out tables of
    # angles.
    self.assertEqual(
      call.bytes, 1024 * (4 * 3 * 256 * 2 + 4 * 256 * (2 + 1 + 1) + 4 * 2 * 4)
    )
    self.assertEqual(program.once.hbm_bytes, call.bytes)

  def test_uncounted_sizes_have_only_bytes(self):
    x = jax.ShapeDtypeStruct((256, 384), jnp.bfloat16)
    call, _ = _call(_text(_pallas_call(rows.quantize, x), 'quantize_rows'))
    self.assertIsNone(call.bundles)
    self.assertEqual(call.bytes, 256 * 384 * (2 + 1) + 256 * 4)

  def test_changed_kernel_is_an_error(self):
    x = jax.ShapeDtypeStruct((256, 1024), jnp.bfloat16)
    text = _text(_pallas_call(rows.quantize, x), 'prefill_attention')
    with self.assertRaisesRegex(ValueError, 'has changed'):
      _work(text)


class AttentionKernelTest(absltest.TestCase):
  def _call(self, text: str = _BEAMS):
    (call,) = hlo_costs.read(text, describe=kernel_costs.describe).once.kernels
    return call

  def test_blocks_are_read_off_the_operands(self):
    prompt, suffix = self._call().blocks
    # A key and its value have 8 bytes each, and a scale of 4 bytes each. The
    # kernel computes full blocks of 384 keys of a prompt, and reads 128 keys at
    # a time.
    self.assertEqual(prompt, costs.Block(False, 384, 128, 384 * 2 * (8 + 4), 0))
    self.assertEqual(suffix, costs.Block(True, 16, 16, 16 * 2 * (8 + 4), 0))
    self.assertIsNone(self._call().bundles)

  def test_prompts_may_be_as_long_as_suffixes(self):
    # Prompts and suffixes have 32 keys each, but a prompt's block has at least
    # 128.
    text = _BEAMS.replace('512]', '32]').replace('512,8]', '32,8]')
    text = text.replace('s32[13]', 's32[10]')
    prompt, suffix = self._call(text).blocks
    self.assertEqual(prompt.bytes / prompt.keys, 2 * (8 + 4))
    self.assertEqual(suffix.bytes / suffix.keys, 2 * (8 + 4))

  def test_instructions_were_counted_for_the_heads_of_a_chip(self):
    # GPT-J's programs have four heads of width 256 per chip.
    text = _BEAMS.replace('[2,3,1,8,512]', '[2,3,4,256,512]')
    text = text.replace('[2,3,1,512,8]', '[2,3,4,512,256]')
    call = self._call(text)
    code = kernel_costs.counted()['attend_beams s8[4,256]']
    self.assertEqual(call.bundles, code.outside)
    self.assertEqual(
      [block.bundles for block in call.blocks], [code.step, code.inner]
    )

  def test_changed_kernel_is_an_error(self):
    with self.assertRaisesRegex(ValueError, 'has changed'):
      self._call(_BEAMS.replace('s8[3,2,2,16]', 's8[3,2,32]'))
    with self.assertRaisesRegex(ValueError, 'do not match'):
      self._call(_BEAMS.replace('s8[3,2,2,16]', 's8[3,9,2,16]'))

  def test_other_kernels_count_all_their_operands(self):
    call = self._call(_BEAMS.replace('attend_beams', 'another'))
    self.assertEqual(call.blocks, ())
    self.assertGreater(call.bytes, 2 * 3 * 512 * 16)
    self.assertIsInstance(call, costs.KernelCall)


if __name__ == '__main__':
  absltest.main()
