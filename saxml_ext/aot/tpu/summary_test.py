"""Tests a program set's summary and its arithmetic of device memory."""

from absl.testing import absltest

from saxml_ext.aot import manifest as manifest_lib
from saxml_ext.aot.tpu import summary
from saxml_ext.aot.tpu import topologies
from saxml_ext.common import errors
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
  def test_text_lists_every_program(self):
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
      summary.check({'decode 8': memory}, topologies.V5E.hbm),
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


def _memory(
  peak: int,
  arguments: int,
  outputs: int = 0,
  aliased: int = 0,
  code: int = 0,
  temporaries: int = 0,
) -> manifest_lib.Memory:
  return manifest_lib.Memory(
    peak=peak,
    arguments=arguments,
    temporaries=temporaries,
    outputs=outputs,
    aliased=aliased,
    code=code,
  )


# The weights have 30 bytes and the state 70.
_SET = {
  'decode 4': _memory(peak=105, arguments=100, outputs=40, aliased=40, code=2),
  'prefill': _memory(peak=60, arguments=50, outputs=20, aliased=20, code=1),
  'empty_state': _memory(peak=70, arguments=0, outputs=70),
}


class FitTest(absltest.TestCase):
  def test_arguments_of_other_programs_stay_resident(self):
    resident = summary.resident_bytes(_SET)
    self.assertEqual(resident, 100)
    needs = summary.needs(_SET, resident, limit=120)
    self.assertEqual(
      needs.by_program,
      # The prefill adds 50 resident bytes, which are not its arguments, to its
      # own 60. With the new state, only the weights are resident. All code is
      # always included.
      {'decode 4': 108, 'prefill': 113, 'empty_state': 103},
    )
    self.assertEqual(needs.worst, 'prefill')
    self.assertEqual(needs.left, 7)

  def test_temporaries_are_one_block(self):
    memory = _memory(peak=105, arguments=100, temporaries=9, outputs=1)
    needs = summary.needs({'decode 4': memory}, resident=100, limit=200)
    self.assertEqual(needs.by_program, {'decode 4': 110})

  def test_set_beyond_the_limit_is_refused(self):
    gib = 2**30
    decode = _memory(peak=17 * gib, arguments=11 * gib, code=gib)
    with self.assertRaisesRegex(
      errors.ResourceExhausted,
      r"'decode 96' needs 18.00 GiB .*, 3.00 GiB more than the 15.00 GiB"
      r'.* Weights and state need 11.00 GiB, and the code .* 1.00 GiB',
    ):
      summary.check({'decode 96': decode}, 15 * gib)
    self.assertEqual(summary.check({'decode 96': decode}, 18 * gib).left, 0)


if __name__ == '__main__':
  absltest.main()
