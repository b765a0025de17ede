import pathlib

from absl.testing import absltest

from saxml_ext.aot.report.compiled import attention_kernel
from saxml_ext.aot.report.compiled import bundles
from saxml_ext.aot.report.compiled import costs
from saxml_ext.aot.report.compiled import hlo_costs
from saxml_ext.aot.report.compiled import kernel_costs

# As libtpu writes code: two bundles, a loop of 14 of which 5 and 3 can be
# skipped, and one bundle behind it.
_CODE = """\
= control target key start
LB: loop body
= control target key end

     0   :  { %s0 = smov 0 }
   0x1   :  { %s1 = smov 0 }
   0x2 LB: > { %p1 = scmp.eq.s32.totalorder %s0, 0 }
   0x3   : > { %1 = sbr.rel (%p1) target = $region7 }
   0x4   :  {}
   0x8   : > { %v1 = vld [vmem:[#allocation2]] } /* Start region 6 */
   0xc   : > { %v2 = vadd.f32 %v1, %v1 } /* End region 6 */
   0xd PF: > { %p2 = scmp.ne.s32.totalorder %s0, 0 } /* Start/End empty region 7 */
   0xe   : > { %2 = sbr.rel (%p2) target = $region9 }
   0xf   :  {}
  0x13   : > { %v3 = vld [vmem:[#allocation2]] } /* Start region 8 */
  0x16 PF: > { %s0 = sadd.s32 1, %s0 } /* Start/End empty region 9 */
  0x17   :  { %s2 = smov 0 }
"""

# 2 layers, 3 slots of 2 beams, 1 head of width 8, prompts of 512 keys in two
# blocks, suffixes of 2 blocks of 16 keys: 4 blocks a slot.
_CALL = """\
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


class BundlesTest(absltest.TestCase):
  def test_counts_what_trips_run_and_skip(self):
    found = bundles.parse(_CODE)
    self.assertEqual(found.outside, 3)
    self.assertLen(found.loops, 1)
    self.assertEqual(found.loops[0].skippable, (5, 3))
    self.assertEqual(found.loops[0].common, 0x17 - 2 - 5 - 3)

  def test_reads_the_last_dump_of_each_kernel(self):
    folder = pathlib.Path(self.create_tempdir().full_path)
    with self.assertRaisesRegex(ValueError, 'LIBTPU_INIT_ARGS'):
      bundles.read(folder)
    (folder / '1-attend_beams.1-72-final_bundles.txt').write_text('0 : {}')
    (folder / '2-attend_beams.1-72-final_bundles.txt').write_text(_CODE)
    (folder / '2-attend_beams.1-71-schedule-analysis.txt').write_text('')
    self.assertEqual(
      bundles.read(folder), {'attend_beams': bundles.parse(_CODE)}
    )


class AttentionKernelTest(absltest.TestCase):
  def _call(self, text: str = _CALL):
    (call,) = hlo_costs.read(text, describe=kernel_costs.describe).once.kernels
    return call

  def test_blocks_are_read_off_the_operands(self):
    prompt, suffix = self._call().blocks
    # A key and its value: 8 bytes each, and a scale of 4 bytes each. The kernel
    # computes a prompt's blocks of 384 keys whole, and reads 128 at a time.
    self.assertEqual(prompt, costs.Block(False, 384, 128, 384 * 2 * (8 + 4), 0))
    self.assertEqual(suffix, costs.Block(True, 16, 16, 16 * 2 * (8 + 4), 0))
    self.assertIsNone(self._call().bundles)

  def test_prompts_may_be_as_long_as_suffixes(self):
    # Of 32 keys each, of which a block has 128 at least.
    text = _CALL.replace('512]', '32]').replace('512,8]', '32,8]')
    text = text.replace('s32[13]', 's32[10]')
    prompt, suffix = self._call(text).blocks
    self.assertEqual(prompt.bytes / prompt.keys, 2 * (8 + 4))
    self.assertEqual(suffix.bytes / suffix.keys, 2 * (8 + 4))

  def test_instructions_are_the_loops(self):
    common = 0x17 - 2 - 5 - 3
    self.assertEqual(
      attention_kernel.bundles_of(bundles.parse(_CODE)),
      (3, common + 5, common + 3),
    )
    one_loop = bundles.Kernel(3, (bundles.Loop(5, (1,)),), (3, 6))
    with self.assertRaisesRegex(ValueError, 'two are expected'):
      attention_kernel.bundles_of(one_loop)

  def test_instructions_were_counted_for_the_heads_of_a_chip(self):
    # Four heads of 256, and 512 keys of suffixes as in GPT-J's programs.
    text = _CALL.replace('[2,3,1,8,512]', '[2,3,4,256,512]')
    text = text.replace('[2,3,1,512,8]', '[2,3,4,512,256]')
    call = self._call(text)
    code = kernel_costs.counted()['attend_beams s8[4,256]']
    self.assertEqual(call.bundles, code.outside)
    self.assertEqual(
      [block.bundles for block in call.blocks], [code.step, code.inner]
    )

  def test_a_kernel_that_has_changed_is_an_error(self):
    with self.assertRaisesRegex(ValueError, 'has changed'):
      self._call(_CALL.replace('s8[3,2,2,16]', 's8[3,2,32]'))
    with self.assertRaisesRegex(ValueError, 'add up'):
      self._call(_CALL.replace('s8[3,2,2,16]', 's8[3,9,2,16]'))

  def test_other_kernels_count_all_their_operands(self):
    call = self._call(_CALL.replace('attend_beams', 'another'))
    self.assertEqual(call.blocks, ())
    self.assertGreater(call.bytes, 2 * 3 * 512 * 16)
    self.assertIsInstance(call, costs.KernelCall)


if __name__ == '__main__':
  absltest.main()
