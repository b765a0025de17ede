from absl.testing import absltest
import numpy as np

from saxml_ext.aot.report import chips
from saxml_ext.aot.report import lengths
from saxml_ext.aot.report import live
from saxml_ext.aot.report import roofline
from saxml_ext.aot.report import rules
from saxml_ext.aot.report.compiled import costs
from saxml_ext.aot.report.testing import sets

_TOPOLOGY = chips.of('v5e 2x2')
_BANDWIDTH = 819e9


class RulesTest(absltest.TestCase):
  def test_cycles_are_of_the_clock(self):
    cost = costs.Cost({costs.MATRICES: 1.5e9, costs.COPIES: 3e9})
    found = rules.parts(cost, _TOPOLOGY, rules.CENTRAL)
    self.assertEqual(found[costs.MATRICES], 1)
    self.assertEqual(found[costs.COPIES], 2)
    self.assertEqual(rules.seconds(cost, _TOPOLOGY, rules.CENTRAL), 3)

  def test_memory_is_waited_for_only_beyond_the_work(self):
    cost = costs.Cost({costs.MATRICES: 1.5e9}, hbm_bytes=3 * _BANDWIDTH)
    found = rules.parts(cost, _TOPOLOGY, rules.CENTRAL)
    self.assertAlmostEqual(found[rules.MEMORY], 2)
    self.assertAlmostEqual(rules.seconds(cost, _TOPOLOGY, rules.CENTRAL), 3)

  def test_a_kernel_takes_the_longer_of_bundles_and_bytes(self):
    for bundles, seconds in ((None, 2), (1.5e9, 2), (6e9, 4)):
      call = costs.KernelCall('attend', 2 * _BANDWIDTH, 1, bundles)
      found = rules.seconds(
        costs.Cost(kernels=(call,)), _TOPOLOGY, rules.CENTRAL
      )
      self.assertAlmostEqual(found, seconds)

  def test_a_kernel_reads_what_the_slots_have(self):
    # Of 2 slots: 3 blocks of 100 keys of prompts, 4 bytes a key; steps 1 to 9
    # of 2 beams, which reach over 1 + (5 - 1) / 4 blocks of 8 keys.
    slots = live.Live(
      2, 2, lengths.Lengths(np.array([250]), np.array([10]), 'one')
    )
    prompt = costs.Block(False, 100, 400, 0)
    suffix = costs.Block(True, 8, 0, 1500)
    self.assertEqual(slots.blocks(prompt), 2 * 3)
    self.assertEqual(slots.blocks(suffix), 2 * 2)
    cost = costs.Cost(
      kernels=(costs.KernelCall('attend', 0, 1, 3000, (prompt, suffix)),)
    )
    found = rules.seconds(cost, _TOPOLOGY, rules.CENTRAL, slots)
    self.assertAlmostEqual(found, 2e-6 + 6 * 400 / _BANDWIDTH + 4 * 1e-6)
    with self.assertRaisesRegex(ValueError, 'busy with'):
      rules.seconds(cost, _TOPOLOGY, rules.CENTRAL)

  def test_an_all_reduce_goes_round_the_ring_twice(self):
    # 2 * 3 / 4 of the bytes over two links of 50e9 * 0.9, and 6 hops.
    exchange = costs.Collective('all-reduce', int(9e10), 4, 1)
    found = rules.collective_seconds(exchange, _TOPOLOGY, 0.9)
    self.assertAlmostEqual(found, 1.5 + 6e-6)
    half = costs.Collective('all-gather', int(9e10), 4, 1)
    found = rules.collective_seconds(half, _TOPOLOGY, 0.9)
    self.assertAlmostEqual(found, 0.75 + 3e-6)
    alone = costs.Collective('all-reduce', int(9e10), 1, 1)
    self.assertEqual(rules.collective_seconds(alone, _TOPOLOGY, 0.9), 0)

  def test_rules_are_in_order(self):
    cost = costs.Cost(
      {costs.MATRICES: 1e9, costs.ELEMENTWISE: 2e9},
      1e9,
      10,
      1e6,
      (costs.Collective('all-reduce', 10**9, 4, 3),),
    )
    found = [rules.seconds(cost, _TOPOLOGY, rule) for rule in rules.RULES]
    self.assertEqual(found, sorted(found, reverse=True))

  def test_a_slice_of_which_too_little_is_known_is_refused(self):
    with self.assertRaisesRegex(ValueError, 'v9_2x2'):
      chips.of('v9 2x2')
    with self.assertRaisesRegex(ValueError, 'clock of TPU v6 lite'):
      chips.of('v6e 2x2')


class RooflineTest(absltest.TestCase):
  def test_parameters_of_gptj(self):
    # 28 layers of 4 * 4096^2 and 2 * 4096 * 16384.
    self.assertEqual(roofline.matrix_parameters(sets.MODEL), 28 * 201326592)

  def test_a_step_without_kv_reads_the_weights(self):
    point = roofline.decode(sets.small(), 0, 0)
    read = 28 * 201326592 + 2 * 4096 * 50401
    self.assertEqual(point.bytes, read / 4)
    self.assertAlmostEqual(point.seconds, read / 4 / _BANDWIDTH)

  def test_beams_share_the_prompt(self):
    made = sets.small()
    empty = roofline.decode(made, 0, 0).bytes
    prompt = roofline.decode(made, 100, 0).bytes - empty
    answer = roofline.decode(made, 0, 100).bytes - empty
    self.assertEqual(prompt, 8 * 100 * 2 * 28 * 4096 / 4)
    self.assertEqual(answer, 4 * prompt)

  def test_a_long_prefill_is_bound_by_arithmetic(self):
    point = roofline.prefill(sets.small(), 1, 1024)
    matrices = 2 * 28 * 201326592 * 1024 / 393e12
    attention = 2 * 28 * 4096 * 1024**2 / 197e12
    self.assertAlmostEqual(point.seconds, (matrices + attention) / 4)


if __name__ == '__main__':
  absltest.main()
