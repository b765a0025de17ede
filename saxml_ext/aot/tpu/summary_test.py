"""Tests of a program set's summary."""

from absl.testing import absltest

from saxml_ext.aot import manifest as manifest_lib
from saxml_ext.aot.tpu import memory_fit
from saxml_ext.aot.tpu import summary
from saxml_ext.aot.tpu import topologies
from saxml_ext.engine import config as config_lib

_GIB = 2**30
_HLO = """
  %r.1 = f32[4] all-reduce-start(%x), channel_id=1
  %r.2 = f32[4] all-reduce-done(%r.1)
  ROOT %g = (f32[4], f32[16]) all-gather(%r.2), dimensions={0}
  %f = f32[4] fusion(%x), calls=%all-reduce-like
"""


def _manifest(program: manifest_lib.Program) -> manifest_lib.Manifest:
  return manifest_lib.Manifest(
    format=manifest_lib.FORMAT,
    configuration=manifest_lib.Configuration(
      serving=manifest_lib.Serving('a.B', {'NUM_CACHE_SLOTS': '8'}),
      target=manifest_lib.Target('tpu', 'TPU v5 lite', 4),
      versions={'jax': '0.10', 'runtime': 'PJRT\nof June'},
      mesh=(1, 1, 4),
      model=config_lib.ModelConfig(2, 32, 4, 8, 64, 4, 50),
      engine=config_lib.EngineConfig(0, num_slots=8, kv_dtype='int8'),
      weights={},
    ),
    xla_flags={'xla_a': 'true'},
    programs=(program,),
  )


class SummaryTest(absltest.TestCase):
  def test_a_set_on_a_page(self):
    memory = manifest_lib.Memory(
      peak=3 * _GIB,
      arguments=2 * _GIB,
      temporaries=_GIB,
      outputs=_GIB,
      aliased=_GIB,
      code=_GIB // 4,
    )
    file = manifest_lib.File('decode_8.executable', '0' * 64, 1_500_000)
    program = manifest_lib.Program(
      'decode 8', (), memory, {manifest_lib.EXECUTABLE: file}
    )
    lines = summary.text(
      _manifest(program),
      topologies.find('v5e_2x2'),
      memory_fit.check({'decode 8': memory}, topologies.V5E.hbm),
      {'decode 8': _HLO},
    ).splitlines()
    self.assertEqual(lines[0], 'a.B NUM_CACHE_SLOTS=8')
    self.assertIn('for v5e_2x2: 4 chips', lines[1])
    self.assertEqual(lines[3], 'jax 0.10, runtime PJRT of June')
    row = next(line for line in lines if line.startswith('decode 8'))
    self.assertEqual(
      row.split()[2:],
      '3.000 2.000 1.000 1.000 1.000 0.250 3.250 1.5'.split()
      + '1 all-gather, 1 all-reduce'.split(),
    )
    self.assertIn('needs most: 3.250 of the 15.750 GiB', lines[-1])
    self.assertIn('12.500 GiB are left', lines[-1])


if __name__ == '__main__':
  absltest.main()
