"""Tests of overrides."""

import json

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.common import errors
from saxml_ext.params import overrides
from saxml_ext.params import template


class _Params(template.ServableLMParams):
  BATCH_SIZE = 4
  BUCKET_KEYS = [128, 256]
  MAX_DECODE_STEPS = (32, 64)


class OverridesTest(parameterized.TestCase):
  def test_sets_attributes_on_a_subclass(self):
    changed = overrides.apply(
      _Params,
      {
        'BATCH_SIZE': '8',
        'BUCKET_KEYS': '[512]',
        'MAX_DECODE_STEPS': '[16]',
        'EXTRA_INPUTS': '{"temperature": 0}',
        'TEMPERATURE': '0.5',
        'USE_BEAM_SEARCH': 'true',
        'VOCABULARY_PATH': '"/a=b"',
      },
    )
    self.assertTrue(issubclass(changed, _Params))
    self.assertEqual(changed.__name__, '_Params')
    self.assertEqual(changed.BATCH_SIZE, 8)
    self.assertEqual(changed.BUCKET_KEYS, [512])
    self.assertEqual(changed.MAX_DECODE_STEPS, [16])
    self.assertEqual(changed.EXTRA_INPUTS, {'temperature': 0})
    self.assertEqual(changed.TEMPERATURE, 0.5)
    self.assertTrue(changed.USE_BEAM_SEARCH)
    self.assertEqual(changed.VOCABULARY_PATH, '/a=b')
    self.assertEqual(_Params.BATCH_SIZE, 4)

  def test_none_goes_with_every_type(self):
    changed = overrides.apply(
      _Params, {'BUCKET_KEYS': 'null', 'BATCH_WAIT_SECS': '1'}
    )
    self.assertIsNone(changed.BUCKET_KEYS)
    self.assertEqual(changed.BATCH_WAIT_SECS, 1)

  @parameterized.parameters(
    ('BATCH_SIZE', '[1, 4]', 'of type list, .* is 4, of type int'),
    ('BATCH_SIZE', '8.0', r'of type float, .* is 4, of type int.*\(8\)'),
    ('BATCH_SIZE', 'true', 'of type bool, .* is 4, of type int'),
    ('TEMPERATURE', '0', r'of type int, .* is 0.0, of type float.*\(0.0\)'),
    ('BUCKET_KEYS', '512', r'of type int, .* of type list.*\(\[512\]\)'),
    ('TOKENIZED_INPUT', '1', 'of type int, .* is False, of type bool'),
  )
  def test_refuses_another_type(self, name, text, message):
    with self.assertRaisesRegex(errors.InvalidArgument, message):
      overrides.apply(_Params, {name: text})

  @parameterized.parameters(
    {'NO_SUCH_ATTRIBUTE': '1'},
    {'ramp': '1000'},
    {'__doc__': '"x"'},
    {'mro': '1'},
    {'BATCH_SIZE': 'eight'},
    {'BATCH_SIZE': ''},
    {'BUCKET_KEYS': '[' * 100_000},
  )
  def test_warns_and_leaves_out(self, **given):
    with self.assertLogs('absl', level='WARNING') as logs:
      self.assertIs(overrides.apply(_Params, given), _Params)
    self.assertIn(next(iter(given)), logs.output[0])

  @parameterized.parameters('ram', 'ram4', 'constraints')
  def test_leaves_the_admin_servers_keys_out_without_a_word(self, name):
    with self.assertNoLogs('absl', level='WARNING'):
      self.assertIs(overrides.apply(_Params, {name: '1'}), _Params)

  def test_flags_become_overrides(self):
    self.assertEqual(
      overrides.from_flags(_Params, ['BATCH_SIZE=8', 'BUCKET_KEYS=[1,2]']),
      {'BATCH_SIZE': '8', 'BUCKET_KEYS': '[1, 2]'},
    )

  @parameterized.parameters(
    ('QUANTIZATION', 'int8', 'int8'),
    ('QUANTIZATION', '"int8"', 'int8'),
    ('VOCABULARY_PATH', '/a/b=c', '/a/b=c'),
    ('VOCABULARY_PATH', 'null', None),
  )
  def test_texts_need_no_quotation_marks(self, name, text, value):
    self.assertEqual(
      getattr(overrides.apply(_Params, {name: text}), name), value
    )
    [flag] = overrides.from_flags(_Params, [f'{name}={text}']).values()
    self.assertEqual(json.loads(flag), value)

  def test_problems(self):
    given = {
      'BATCH_SIZ': '8',
      'BATCH_SIZE': '"8"',
      'BUCKET_KEYS': '[512',
      'TOP_K': '1',
      'VOCABULARY_PATH': '"/a',
    }
    name, kind, half, text = overrides.problems(_Params, given)
    self.assertIn('BATCH_SIZ has no effect: _Params has no such', name)
    self.assertIn('Did you mean BATCH_SIZE?', name)
    self.assertIn('of type str', kind)
    self.assertIn('BUCKET_KEYS=[512 has no effect: the value is not JSON', half)
    self.assertIn('VOCABULARY_PATH="/a has no effect', text)
    many = {f'NOPE_{i}': '1' for i in range(100_000)}
    self.assertLen(overrides.problems(_Params, many), 20)

  @parameterized.parameters(
    ('BATCH_SIZE', 'Write KEY=VALUE, for example'),
    ('BATCH_SIZE=a', 'the value is not JSON'),
    ('BATCHSIZE=1', 'has no such attribute. Did you mean BATCH_SIZE?'),
    ('mro=1', 'override mro has no effect: .* lists the attributes'),
  )
  def test_mistyped_flags_are_refused(self, text, message):
    with self.assertRaisesRegex(errors.InvalidArgument, message):
      overrides.from_flags(_Params, [text])


if __name__ == '__main__':
  absltest.main()
