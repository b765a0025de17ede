import dataclasses

from absl.testing import absltest
import numpy as np

from benchmarks.tpu_estimate import lengths
from benchmarks.tpu_estimate import roofline
from benchmarks.tpu_estimate import rules
from benchmarks.tpu_estimate.compiled import costs
from benchmarks.tpu_estimate.testing import sets
from saxml_ext.aot.tpu import topologies

_TOPOLOGY = topologies.find('v5e 2x2')
_BANDWIDTH = 819e9
# This rule uses the peaks and XLA's cycles unchanged, so figures can be checked
# by hand.
_PLAIN = rules.Rule(
  name='plain',
  hbm=1.0,
  computing=1.0,
  elementwise=1.0,
  copies=1.0,
  launch=0.0,
  link=0.9,
  hop=1e-6,
  overlap=False,
  host=0.0,
  message=0.0,
  steps=1.0,
  always_longest=False,
)
# A cost that contains every part.
_COST = costs.Cost(
  {costs.MATRICES: 1e9, costs.ELEMENTWISE: 2e9, costs.COPIES: 1e9},
  1e9,
  10,
  1e6,
  (costs.Collective('all-reduce', 10**9, 4, 3),),
  (costs.KernelCall('normalize', 1e6, 1, 1e6),),
)


class RulesTest(absltest.TestCase):
  def test_cycles_are_divided_by_the_clock_rate(self):
    cost = costs.Cost({costs.MATRICES: 1.5e9, costs.COPIES: 3e9})
    parts = rules.parts(cost, _TOPOLOGY, _PLAIN)
    self.assertEqual(parts[costs.MATRICES], 1)
    self.assertEqual(parts[costs.COPIES], 2)
    self.assertEqual(rules.seconds(cost, _TOPOLOGY, _PLAIN), 3)

  def test_memory_counts_only_beyond_the_work(self):
    cost = costs.Cost({costs.MATRICES: 1.5e9}, hbm_bytes=3 * _BANDWIDTH)
    parts = rules.parts(cost, _TOPOLOGY, _PLAIN)
    self.assertAlmostEqual(parts[rules.MEMORY], 2)
    self.assertAlmostEqual(rules.seconds(cost, _TOPOLOGY, _PLAIN), 3)

  def test_a_kernel_takes_the_longer_of_bundles_and_bytes(self):
    for bundles, seconds in ((None, 2), (1.5e9, 2), (6e9, 4)):
      call = costs.KernelCall('attend', 2 * _BANDWIDTH, 1, bundles)
      estimate = rules.seconds(costs.Cost(kernels=(call,)), _TOPOLOGY, _PLAIN)
      self.assertAlmostEqual(estimate, seconds)

  def test_kernel_reads_the_keys_of_the_slots(self):
    # There are 2 slots, with prompts of 250 keys and 4 bytes per key. The 9
    # steps of 2 beams cover 1 + (5 - 1) / 4 blocks of 8 keys on average.
    slots = rules.Live(
      2, 2, lengths.Lengths(np.array([250]), np.array([10]), 'one')
    )
    prompt = costs.Block(False, 100, 50, 400, 0)
    suffix = costs.Block(True, 8, 8, 0, 1500)
    self.assertEqual(slots.seconds(suffix, 1, 0), 2 * 2)
    cost = costs.Cost(
      kernels=(costs.KernelCall('attend', 0, 1, 3000, (prompt, suffix)),)
    )
    estimate = rules.seconds(cost, _TOPOLOGY, _PLAIN, slots)
    self.assertAlmostEqual(estimate, 2e-6 + 2 * 250 * 4 / _BANDWIDTH + 4 * 1e-6)
    with self.assertRaisesRegex(ValueError, 'the contents of the slots'):
      rules.seconds(cost, _TOPOLOGY, _PLAIN)

  def test_a_last_block_is_computed_whole_and_read_in_chunks(self):
    block = costs.Block(False, 384, 128, 384, 1)
    for prompt, bound, seconds in (
      (384, 'computing', 10),
      (385, 'computing', 20),
      (768, 'computing', 20),
      (384, 'reading', 30),
      # Computing a block takes 10, and reading each chunk takes 10.
      (385, 'reading', 30 + 10),
      (384 + 129, 'reading', 30 + 20),
      (768, 'reading', 60),
    ):
      slots = rules.Live(
        1, 4, lengths.Lengths(np.array([prompt]), np.array([10]), 'one')
      )
      reading = 30 if bound == 'reading' else 1
      self.assertAlmostEqual(slots.seconds(block, 10, reading), seconds)

  def test_an_all_reduce_goes_round_the_ring_twice(self):
    # 2 * 3 / 4 of the bytes pass over two links of 50e9 * 0.9, in 6 hops.
    exchange = costs.Collective('all-reduce', int(9e10), 4, 1)
    estimate = rules.collective_seconds(exchange, _TOPOLOGY, _PLAIN)
    self.assertAlmostEqual(estimate, 1.5 + 6e-6)
    half = costs.Collective('all-gather', int(9e10), 4, 1)
    estimate = rules.collective_seconds(half, _TOPOLOGY, _PLAIN)
    self.assertAlmostEqual(estimate, 0.75 + 3e-6)
    alone = costs.Collective('all-reduce', int(9e10), 1, 1)
    self.assertEqual(rules.collective_seconds(alone, _TOPOLOGY, _PLAIN), 0)

  def test_collectives_start_as_late_as_measured(self):
    # Starts among 4 chips were measured at 7 to 14 us. A hop takes at least a
    # microsecond.
    for kind, times in (
      ('all-gather', (14, 7, 3)),
      ('all-reduce', (28, 14, 6)),
    ):
      empty = costs.Collective(kind, 0, 4, 1)
      for rule, microseconds in zip(rules.RULES, times, strict=True):
        estimate = rules.collective_seconds(empty, _TOPOLOGY, rule)
        self.assertAlmostEqual(1e6 * estimate, microseconds)

  def test_overlapping_exchange_takes_the_remaining_time(self):
    # There is 1 s of work, 1 s more of memory, and 1.5 s or 2.5 s of exchange.
    beside = dataclasses.replace(_PLAIN, hop=0.0, overlap=True)
    for gigabytes, left in ((90, 0.0), (150, 0.5)):
      exchange = costs.Collective('all-reduce', gigabytes * 10**9, 4, 1)
      cost = costs.Cost(
        {costs.MATRICES: 1.5e9}, 2 * _BANDWIDTH, collectives=(exchange,)
      )
      parts = rules.parts(cost, _TOPOLOGY, beside)
      self.assertAlmostEqual(parts[rules.EXCHANGE], left)
      self.assertAlmostEqual(sum(parts.values()), 2 + left)

  def test_passes_take_their_measured_times(self):
    # XLA estimates 3,415,064 cycles for 1,237 measured us, and 2,384,276 cycles
    # for 1,562 us.
    passes = costs.Cost({costs.ELEMENTWISE: 3415064, costs.COPIES: 2384276})
    parts = rules.parts(passes, _TOPOLOGY, rules.CENTRAL)
    self.assertAlmostEqual(1e6 * parts[costs.ELEMENTWISE], 1237, delta=1)
    self.assertAlmostEqual(1e6 * parts[costs.COPIES], 1562, delta=1)

  def test_computing_takes_longer_than_cycles_and_bundles(self):
    kernel = costs.KernelCall('k', 0, 1, 1.5e9)
    cost = costs.Cost({costs.MATRICES: 1.5e9}, kernels=(kernel,))
    for rule, seconds in zip(rules.RULES, (1.3, 1.1, 1.0), strict=True):
      parts = rules.parts(cost, _TOPOLOGY, rule)
      self.assertAlmostEqual(parts[costs.MATRICES], seconds)
      self.assertAlmostEqual(parts[rules.KERNELS], seconds)

  def test_memory_reaches_a_share_of_its_peak(self):
    read = costs.Cost(
      hbm_bytes=819e9, kernels=(costs.KernelCall('k', 819e9, 1),)
    )
    for rule, rate in zip(rules.RULES, (671e9, 737e9, 753e9), strict=True):
      estimate = rules.seconds(read, _TOPOLOGY, rule)
      self.assertAlmostEqual(estimate, 819e9 / rate)

  def test_rules_are_in_order(self):
    estimates = [rules.seconds(_COST, _TOPOLOGY, rule) for rule in rules.RULES]
    self.assertEqual(estimates, sorted(estimates, reverse=True))

  def test_the_outer_forms_vary_every_term(self):
    pessimistic, central, optimistic = map(dataclasses.asdict, rules.RULES)
    for term in central:
      self.assertNotEqual(pessimistic[term], optimistic[term], term)

  def test_chip_without_a_clock_rate_is_refused(self):
    made = sets.small()
    with self.assertRaisesRegex(ValueError, 'v9_2x2'):
      rules.topology_of(dataclasses.replace(made, topology='v9 2x2'))
    with self.assertRaisesRegex(ValueError, r'clock rate of TPU v5 \(v5p'):
      rules.topology_of(dataclasses.replace(made, topology='v5p 2x2'))


class RooflineTest(absltest.TestCase):
  def test_parameters_of_gptj(self):
    # There are 28 layers of 4 * 4096^2 and 2 * 4096 * 16384 parameters.
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

  def test_queries_that_share_keys_read_fewer(self):
    made = sets.small()
    shared = dataclasses.replace(made, model={**sets.MODEL, 'num_kv_heads': 4})
    read = [
      roofline.decode(model, 100, 0).bytes - roofline.decode(model, 0, 0).bytes
      for model in (made, shared)
    ]
    self.assertEqual(read[0], 4 * read[1])
    fewer = 28 * 2 * 4096 * (4096 - 1024)
    self.assertEqual(
      roofline.matrix_parameters(shared.model), 28 * 201326592 - fewer
    )

  def test_a_gate_is_a_third_matrix(self):
    model = {**sets.MODEL, 'architecture': {'gated': True}}
    self.assertEqual(
      roofline.matrix_parameters(model),
      28 * (201326592 + 4096 * 16384),
    )

  def test_a_long_prefill_is_bound_by_arithmetic(self):
    point = roofline.prefill(sets.small(), 1, 1024)
    matrices = 2 * 28 * 201326592 * 1024 / 393e12
    attention = 2 * 28 * 4096 * 1024**2 / 197e12
    self.assertAlmostEqual(point.seconds, (matrices + attention) / 4)


if __name__ == '__main__':
  absltest.main()
