import pathlib

from absl.testing import absltest

from benchmarks.tpu_estimate.compiled import bundles

# Code in libtpu's format: two bundles, a loop of 14 bundles that can skip 5 and
# 3 of them, and one bundle after it.
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


class BundlesTest(absltest.TestCase):
  def test_counts_bundles_that_trips_run_and_skip(self):
    kernel = bundles.parse(_CODE)
    self.assertEqual(kernel.depths[0], 3)
    self.assertLen(kernel.loops, 1)
    self.assertEqual(kernel.loops[0].skippable, (5, 3))
    self.assertEqual(kernel.loops[0].common, 0x17 - 2 - 5 - 3)

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

  def test_instructions_are_the_loops(self):
    common = 0x17 - 2 - 5 - 3
    self.assertEqual(
      bundles.count_decode_attention(bundles.parse(_CODE)),
      (3, common + 5, common + 3),
    )
    one_loop = bundles.Kernel((bundles.Loop(5, (1,)),), (3, 6))
    with self.assertRaisesRegex(ValueError, 'must have two'):
      bundles.count_decode_attention(one_loop)


if __name__ == '__main__':
  absltest.main()
