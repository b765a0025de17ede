"""Tests that only likely mistakes of a publish are reported."""

from absl.testing import absltest

from saxml_ext.common import errors
from saxml_ext.params import all_params  # noqa: F401 Registers them.
from saxml_ext.params import overrides

_PATH = 'saxml_ext.params.gptj.TinyFP32'


class MistakesTest(absltest.TestCase):
  def test_sound_overrides(self):
    given = {'BATCH_SIZE': '8', 'ram': '1000', 'ram4': '9', 'constraints': 'a'}
    self.assertEqual(overrides.find_mistakes(_PATH, given), [])

  def test_known_params_know_all_their_attributes(self):
    [text] = overrides.find_mistakes(_PATH, {'SOMETHING_ELSE': '1'})
    self.assertIn('TinyFP32 has no such attribute', text)

  def test_unknown_params_are_checked_for_misspelled_names(self):
    given = {'BATCH_SIZ': '8', 'SOMETHING_ELSE': '1', 'BATCH_SIZE': '"x"'}
    [text] = overrides.find_mistakes('other.Params', given)
    self.assertIn('Did you mean BATCH_SIZE?', text)

  def test_known_params_refuse_what_a_server_would_ignore(self):
    for override, message in (
      ({'BATCHSIZE': '3'}, 'no such attribute. Did you mean BATCH_SIZE?'),
      ({'batch_size': '3'}, 'no such attribute. Did you mean BATCH_SIZE?'),
      ({'NOPE': '1'}, 'docs/serving_params.md lists the attributes'),
      ({'BATCH_SIZE': 'x'}, 'the value is not JSON'),
      ({'BATCH_SIZE': '"x"'}, 'is of type str, but TinyFP32.BATCH_SIZE'),
    ):
      with self.assertRaisesRegex(errors.InvalidArgument, message):
        overrides.check(_PATH, override)
    overrides.check(_PATH, {'BATCH_SIZE': '3', 'ram': '1', 'constraints': 'a'})

  def test_params_of_other_servers_are_not_refused(self):
    overrides.check('other.Params', {'BATCHSIZE': '3', 'NOPE': '1'})

  def test_paths(self):
    self.assertEqual(overrides.find_path_mistake(_PATH), '')
    self.assertEqual(overrides.find_path_mistake('other.Params'), '')
    text = overrides.find_path_mistake('saxml_ext.params.gptj.TinyFP23')
    self.assertIn(_PATH, text)


if __name__ == '__main__':
  absltest.main()
