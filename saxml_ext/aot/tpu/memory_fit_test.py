"""Tests of the arithmetic of device memory."""

from absl.testing import absltest

from saxml_ext.aot import manifest
from saxml_ext.aot.tpu import memory_fit
from saxml_ext.common import errors


def _memory(
  peak: int,
  arguments: int,
  outputs: int = 0,
  aliased: int = 0,
  code: int = 0,
  temporaries: int = 0,
) -> manifest.Memory:
  return manifest.Memory(
    peak=peak,
    arguments=arguments,
    temporaries=temporaries,
    outputs=outputs,
    aliased=aliased,
    code=code,
  )


# Weights of 30 and a state of 70.
_SET = {
  'decode 4': _memory(peak=105, arguments=100, outputs=40, aliased=40, code=2),
  'prefill': _memory(peak=60, arguments=50, outputs=20, aliased=20, code=1),
  'empty_state': _memory(peak=70, arguments=0, outputs=70),
}


class FitTest(absltest.TestCase):
  def test_what_a_program_does_not_get_is_resident_too(self):
    resident = memory_fit.resident_bytes(_SET)
    self.assertEqual(resident, 100)
    found = memory_fit.needs(_SET, resident, limit=120)
    self.assertEqual(
      found.by_program,
      # Beside the prefill's 60 there are the 50 that it does not get; beside
      # the new state there are only the weights; and there is all code.
      {'decode 4': 108, 'prefill': 113, 'empty_state': 103},
    )
    self.assertEqual(found.worst, 'prefill')
    self.assertEqual(found.missing, 0)

  def test_temporaries_are_taken_whole(self):
    told = _memory(peak=105, arguments=100, temporaries=9, outputs=1)
    found = memory_fit.needs({'decode 4': told}, resident=100, limit=200)
    self.assertEqual(found.by_program, {'decode 4': 110})

  def test_what_does_not_fit_is_refused(self):
    gib = 2**30
    decode = _memory(peak=17 * gib, arguments=11 * gib, code=gib)
    with self.assertRaisesRegex(
      errors.ResourceExhausted,
      r"'decode 96' needs 18.00 GiB .*, 3.00 GiB more than the 15.00 GiB"
      r'.*: 11.00 GiB are weights and state, 1.00 GiB the code',
    ):
      memory_fit.check({'decode 96': decode}, 15 * gib)
    self.assertEqual(
      memory_fit.check({'decode 96': decode}, 18 * gib).missing, 0
    )


if __name__ == '__main__':
  absltest.main()
