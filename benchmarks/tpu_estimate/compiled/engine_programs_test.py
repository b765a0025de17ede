import collections
import pathlib
import re

from absl.testing import absltest
from absl.testing import parameterized

from benchmarks.tpu_estimate.compiled import costs
from benchmarks.tpu_estimate.compiled import engine_programs

_DATA = pathlib.Path('benchmarks/tpu_estimate/data')
_FILES = (
  'engine.json',
  'llama3_1_8b_int8_v5e_2x2.json',
  'llama3_1_8b_int8_v6e_1x1.json',
  'llama3_1_8b_int8_v6e_2x2.json',
  'sax_512.json',
  'sax_1024.json',
  'sax_1919.json',
)
_KERNEL = re.compile(r'custom_call @tpu_custom_call.*kernel_name = "(\w+)"')


def _read(name: str) -> costs.Set:
  return costs.read(_DATA / name)


def _kernels(program: str) -> collections.Counter[str]:
  """Counts the calls of Mosaic kernels in a program of int8 GPT-J."""
  text = engine_programs.lowered(_read('engine.json'), program)
  return collections.Counter(_KERNEL.findall(text))


class KeptCostsTest(parameterized.TestCase):
  @parameterized.parameters(*((name,) for name in _FILES))
  def test_kept_costs_match_the_programs(self, name):
    kept = _read(name)
    for program, cost in kept.programs.items():
      self.assertEqual(
        engine_programs.fingerprint(kept, program),
        cost.lowered,
        f'The engine lowers {program!r} of data/{name} to another program than'
        ' the kept costs are of. Make them again: "Making costs" in'
        ' docs/aot_report.md.',
      )

  def test_every_kept_file_is_checked(self):
    self.assertSameElements(_FILES, [p.name for p in _DATA.glob('*.json')])


class LoweringTest(absltest.TestCase):
  def test_a_decode_step_calls_its_kernels(self):
    self.assertEqual(
      _kernels('decode 96'),
      {'attend_beams': 1, 'normalize_rows': 2, 'quantize_rows': 2},
    )

  def test_a_prefill_calls_its_kernels(self):
    self.assertSameElements(
      _kernels('prefill_and_insert 1 0 512'),
      ['prefill_attention', 'normalize_rows', 'quantize_rows'],
    )


if __name__ == '__main__':
  absltest.main()
