"""Tests the estimates of kernels with the text of a small program."""

from absl.testing import absltest

from benchmarks.gpu_cases import gpu_times

_HLO = """HloModule jit_decode

%gemm (a: bf16[8,64], b: bf16[64,32]) -> f32[8,32] {
  %a = bf16[8,64]{1,0} parameter(0)
  %b = bf16[64,32]{1,0} parameter(1)
  ROOT %dot = f32[8,32]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

%body (state: (s32[], bf16[8,64], bf16[64,32], bf16[4,1024])) -> (s32[], bf16[8,64], bf16[64,32], bf16[4,1024]) {
  %state = (s32[], bf16[8,64], bf16[64,32], bf16[4,1024]) parameter(0)
  %step = s32[] get-tuple-element(%state), index=0
  %x = bf16[8,64]{1,0} get-tuple-element(%state), index=1
  %w = bf16[64,32]{1,0} get-tuple-element(%state), index=2
  %keys = bf16[4,1024]{1,0} get-tuple-element(%state), index=3
  %product = f32[8,32]{1,0} fusion(%x, %w), kind=kCustom, calls=%gemm
  %write = (f32[8,32]{1,0}, bf16[4,1024]{1,0}) custom-call(%product, %keys), custom_call_target="__gpu$xla.gpu.triton", output_to_operand_aliasing={{1}: (1, {})}, api_version=API_VERSION_TYPED_FFI
  %kept = bf16[4,1024]{1,0} get-tuple-element(%write), index=1
  ROOT %next = (s32[], bf16[8,64], bf16[64,32], bf16[4,1024]) tuple(%step, %x, %w, %kept)
}

%condition (state.1: (s32[], bf16[8,64], bf16[64,32], bf16[4,1024])) -> pred[] {
  %state.1 = (s32[], bf16[8,64], bf16[64,32], bf16[4,1024]) parameter(0)
  ROOT %more = pred[] constant(true)
}

ENTRY %main (begin: (s32[], bf16[8,64], bf16[64,32], bf16[4,1024])) -> (s32[], bf16[8,64], bf16[64,32], bf16[4,1024]) {
  %begin = (s32[], bf16[8,64], bf16[64,32], bf16[4,1024]) parameter(0)
  ROOT %loop = (s32[], bf16[8,64], bf16[64,32], bf16[4,1024]) while(%begin), condition=%condition, body=%body
}
"""


class GpuTimesTest(absltest.TestCase):
  def test_kernels_have_the_bytes_and_operations_of_a_step(self):
    product = 2 * 8 * 64 + 2 * 64 * 32 + 4 * 8 * 32
    # Keys that the second kernel updates in place are not counted.
    self.assertEqual(
      gpu_times.kernels(_HLO),
      [
        gpu_times.Kernel(product, 2.0 * 8 * 64 * 32, 'bf16'),
        gpu_times.Kernel(2 * 4 * 8 * 32),
      ],
    )

  def test_attention_reads_the_blocks_in_use(self):
    write = 'api_version=API_VERSION_TYPED_FFI'
    text = _HLO.replace(
      write, f'{write}, metadata={{op_name="step/attend_blocks/pallas_call"}}'
    )
    _, whole = gpu_times.kernels(text)
    _, half = gpu_times.kernels(text, blocks=0.5)
    self.assertEqual(half.bytes, whole.bytes / 2)

  def test_large_product_takes_the_measured_time_at_most(self):
    kernel = gpu_times.Kernel(2.0 * 4096 * 14336, 0.0, 'bf16')
    least, most = kernel.seconds(rows=8)
    self.assertAlmostEqual(1e6 * most, 36.3 + 2.7, delta=0.3)
    self.assertBetween(least, 0.83 * most, most)

  def test_products_in_fp8_compute_in_16_bits_at_worst(self):
    kernel = gpu_times.Kernel(8.0, 1551e9, 'f8e4m3fn')
    least, most = kernel.seconds(rows=128)
    self.assertAlmostEqual(1e3 * least, 1)
    self.assertAlmostEqual(1e3 * most, 1551 / 768, delta=0.01)

  def test_small_kernels_take_the_time_of_a_launch(self):
    least, most = gpu_times.step_seconds([gpu_times.Kernel(8.0)] * 100, rows=1)
    self.assertAlmostEqual(1e6 * least, 140)
    self.assertAlmostEqual(1e6 * most, 270, delta=1)


if __name__ == '__main__':
  absltest.main()
