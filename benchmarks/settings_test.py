import dataclasses

from absl.testing import absltest

from benchmarks import contenders
from benchmarks import settings as settings_lib

_SETTINGS = settings_lib.Settings(
  model='/model',
  cache='/cache',
  out='/out',
  articles=None,
  tokenizer=None,
  request_set='fixed',
  modes=('beam', 'greedy'),
  engines=(contenders.REFERENCE,),
  counts=(8,),
  prompt=16,
  new_tokens=8,
  beams=4,
  slots=32,
  cores=(0,),
  rounds=3,
)


class SettingsTest(absltest.TestCase):
  def test_single_width_is_one_mode(self):
    self.assertEqual(
      settings_lib.modes(['beam', 'greedy'], [6]), ('beam', 'greedy')
    )
    for mode, beams in (('beam', 4), ('greedy', 1)):
      self.assertIs(_SETTINGS.for_mode(mode), _SETTINGS)
      self.assertEqual(_SETTINGS.beams_of(mode), beams)

  def test_each_of_several_widths_is_a_mode_with_as_many_rows(self):
    modes = settings_lib.modes(['beam'], [2, 4, 8, 30, 100])
    self.assertEqual(modes, ('beam2', 'beam4', 'beam8', 'beam30', 'beam100'))
    settings = dataclasses.replace(_SETTINGS, modes=modes)
    by_beams = {}
    for mode in modes:
      own = settings.for_mode(mode)
      by_beams[own.beams_of(mode)] = own.counts, own.trial_new_tokens
    self.assertEqual(
      by_beams,
      {
        2: ((8,), None),
        4: ((8,), None),
        8: ((4,), None),
        30: ((1,), 8),
        100: ((1,), 8),
      },
    )

  def test_unknown_mode_is_refused(self):
    with self.assertRaisesRegex(ValueError, "--modes has 'beams'"):
      settings_lib.modes(['beams'], [4])
    with self.assertRaisesRegex(ValueError, '--beams has 1. The minimum is 2'):
      settings_lib.modes(['beam'], [1, 4])


if __name__ == '__main__':
  absltest.main()
