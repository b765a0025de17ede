import gzip
import hashlib
import pathlib

from absl.testing import absltest
from absl.testing import parameterized

from benchmarks.tpu_estimate.compiled import costs
from benchmarks.tpu_estimate.compiled import hlo_costs
from benchmarks.tpu_estimate.compiled import hlo_text
from benchmarks.tpu_estimate.testing import hlo
from saxml_ext.aot import manifest as manifest_lib
from saxml_ext.engine import config as config_lib


class HloTextTest(absltest.TestCase):
  def test_reads_computations_and_the_entry(self):
    module = hlo_text.parse(hlo.DECODE)
    self.assertEqual(module.entry, 'main')
    self.assertLen(module.computations, 10)
    product = module.computations['layer_body']['product']
    self.assertEqual(product.operands, ('x', 'weights', 'j'))
    self.assertEqual(product.called, {'calls': ('fused_product',)})

  def test_finds_arrays_in_hbm(self):
    body = hlo_text.parse(hlo.DECODE).computations['layer_body']
    self.assertEqual(body['weights'].hbm_bytes, 48)
    self.assertEqual(body['x'].hbm_bytes, 0)
    self.assertEqual(body['x'].bytes, 64)
    self.assertEqual([a.bytes for a in body['d'].arrays], [4, 64, 48, 1])

  def test_sizes_of_number_formats(self):
    sizes = [hlo_text.bits(d) for d in ('s4', 'pred', 'bf16', 'f8e4m3fn')]
    self.assertEqual(sizes, [4, 8, 16, 8])
    self.assertEqual(hlo_text.bits('token'), 0)

  def test_other_text_is_refused(self):
    with self.assertRaisesRegex(ValueError, 'not an optimized HLO module'):
      hlo_text.parse('module @jit_f { }')


class HloCostsTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.program = hlo_costs.read(hlo.DECODE)

  def test_cycles_of_a_step_count_trips_and_the_dearer_branch(self):
    assert self.program.step is not None
    self.assertEqual(
      self.program.step.cycles,
      {
        costs.MATRICES: 3 * 100,
        costs.ATTENTION: 3 * 30,
        costs.COPIES: 3 * 10 + 9,
        costs.ELEMENTWISE: 5,
      },
    )

  def test_code_outside_the_loop_counts_once(self):
    self.assertEqual(self.program.once.cycles, {costs.ELEMENTWISE: 11})
    self.assertEqual(self.program.once.hbm_bytes, 64)  # This is the prefetch.

  def test_slice_of_stacked_weights_counts_its_own_bytes(self):
    assert self.program.step is not None
    # Each of 3 trips reads 16 bytes of a layer, and the kernel moves 48 bytes.
    # The copy writes 64.
    self.assertEqual(self.program.step.hbm_bytes, 3 * (16 + 48) + 64)

  def test_exchanges_and_kernels_are_listed(self):
    assert self.program.step is not None
    self.assertEqual(
      self.program.step.collectives,
      (costs.Collective('all-reduce', 64, 4, 3),),
    )
    kernel = costs.KernelCall('attend_kernel', 48, 3)
    self.assertEqual(self.program.step.kernels, (kernel,))

  def test_collectives_in_fusions_count_once(self):
    cost = hlo_costs.read(hlo.EXCHANGES).once
    self.assertEqual(
      cost.collectives,
      (
        costs.Collective('reduce-scatter', 128, 4, 1),
        costs.Collective('all-gather', 256, 4, 1),
      ),
    )
    self.assertEqual(cost.uncosted, 0)

  def test_operations_without_an_estimate_are_listed_but_no_scalars(self):
    assert self.program.step is not None
    self.assertEqual(self.program.step.uncosted, 1)
    self.assertEqual(self.program.step.uncosted_bytes, 2 * 64)

  def test_largest_number_is_no_estimate(self):
    text = hlo.DECODE.replace(
      '"estimated_cycles":"11"', '"estimated_cycles":"9223372036854775807"'
    )
    once = hlo_costs.read(text).once
    self.assertEqual(once.cycles, {})
    self.assertEqual((once.uncosted, once.uncosted_bytes), (1, 3 * 64))

  def test_trips_are_read_off_the_condition_or_the_note(self):
    module = hlo_text.parse(hlo.DECODE)
    layers = module.computations['step_body']['layers']
    steps = module.computations['main']['loop']
    self.assertEqual(hlo_costs.trip_count(module, layers), 3)
    self.assertIsNone(hlo_costs.trip_count(module, steps))
    noted = hlo_text.parse(
      hlo.DECODE.replace(
        'body=%step_body',
        'body=%step_body, backend_config={"known_trip_count":{"n":"5"}}',
      )
    )
    loop = noted.computations['main']['loop']
    self.assertEqual(hlo_costs.trip_count(noted, loop), 5)

  def test_two_loops_of_unknown_length_are_refused(self):
    line = next(x for x in hlo.DECODE.splitlines() if x.startswith('  %loop'))
    twice = line + '\n' + line.replace('%loop', '%again')
    with self.assertRaisesRegex(ValueError, '2 loops'):
      hlo_costs.read(hlo.DECODE.replace(line, twice))

  @parameterized.parameters(
    ('replica_groups={{0,1},{2,3}}', 2),
    ('replica_groups=[2,4]<=[8]', 4),
    ("replica_groups=mesh['x'=2,'y'=4] {'x','y'}", 8),
    ("replica_groups=mesh['x'=4], device_ids=([2,4]T(1,0)) {'x'}", 4),
  )
  def test_group_sizes(self, attributes: str, size: int):
    self.assertEqual(hlo_costs.group_size(attributes), size)

  def test_a_group_that_is_not_understood_is_an_error(self):
    with self.assertRaisesRegex(ValueError, 'no group'):
      hlo_costs.group_size('channel_id=1')


class CostsTest(absltest.TestCase):
  def test_costs_survive_a_round_trip(self):
    made = costs.Set(
      'A test', 'v5e 2x2', 8, 4, 'int8', 'int8', {'num_layers': 1}, 'none',
      {'decode 8': hlo_costs.read(hlo.DECODE, {'peak': 5})},
    )  # fmt: skip
    text = costs.write(made)
    self.assertEqual(costs.parse(text, 'x'), made)
    self.assertEqual(costs.write(costs.parse(text, 'x')), text)

  def test_equal_calls_are_counted_together(self):
    call = costs.Cost(collectives=(costs.Collective('all-reduce', 8, 4, 1),))
    both = call + call.times(3)
    self.assertEqual(both.collectives[0].count, 4)
    self.assertLen(both.collectives, 1)

  def test_other_files_are_refused(self):
    for text, reason in (
      ('{', 'is not a file of costs'),
      ('{"format": 99}', 'format 99'),
      ('{"format": 2, "programs": {"a": {}}}', 'other fields'),
    ):
      with self.assertRaisesRegex(ValueError, reason):
        costs.parse(text, 'x.json')


class ProgramSetsTest(absltest.TestCase):
  def _set(self, kind: str = 'TPU v5 lite', with_hlo: bool = True):
    folder = pathlib.Path(self.create_tempdir().full_path)
    packed = gzip.compress(hlo.DECODE.encode())
    (folder / 'decode.hlo').write_bytes(packed)
    sha256 = hashlib.sha256(packed).hexdigest()
    file = manifest_lib.File('decode.hlo', sha256, len(packed))
    files = {manifest_lib.EXECUTABLE: file}
    if with_hlo:
      files[manifest_lib.OPTIMIZED_HLO] = file
    manifest = manifest_lib.Manifest(
      manifest_lib.FORMAT,
      manifest_lib.Configuration(
        manifest_lib.Serving('a.b.Model', {}),
        manifest_lib.Target('tpu', kind, 4, (2, 2, 1), (2, 2, 1)),
        {'jax': '1'},
        (1, 1, 4),
        config_lib.ModelConfig(2, 8, 2, 4, 32, 4, 100),
        config_lib.EngineConfig(1, num_slots=8, kv_dtype='int8'),
        {'head': manifest_lib.Leaf((100, 8), 'int8', (None, None))},
      ),
      {},
      (
        manifest_lib.Program(
          'decode 8', (), manifest_lib.Memory(5, 4, 1, 0, 0, 0), files
        ),
      ),
    )
    (folder / manifest_lib.NAME).write_text(manifest_lib.dumps(manifest))
    return folder

  def test_reads_a_program_set(self):
    programs = hlo_costs.read_set(self._set())
    self.assertEqual(programs.topology, 'v5e 2x2')
    self.assertEqual((programs.slots, programs.beams), (8, 4))
    self.assertEqual((programs.weights, programs.kv), ('int8', 'int8'))
    program = programs.programs['decode 8']
    assert program.step is not None
    self.assertEqual(program.step.total_cycles, 434)
    self.assertEqual(program.memory['peak'], 5)

  def test_a_damaged_file_is_refused(self):
    folder = self._set()
    (folder / 'decode.hlo').write_bytes(b'')
    with self.assertRaisesRegex(ValueError, 'is damaged: its SHA-256 differs'):
      hlo_costs.read_set(folder)

  def test_sets_without_hlo_or_for_other_devices_are_refused(self):
    with self.assertRaisesRegex(ValueError, 'no optimized HLO'):
      hlo_costs.read_set(self._set(with_hlo=False))
    with self.assertRaisesRegex(ValueError, 'TPU v1'):
      hlo_costs.read_set(self._set('TPU v1'))


if __name__ == '__main__':
  absltest.main()
