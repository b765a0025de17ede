"""Tests of reading a request's members."""

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.http.protocol import fields
from saxml_ext.http.protocol import problems


class FieldsTest(parameterized.TestCase):
  def assert_refused(self, call, *words):
    with self.assertRaises(problems.BadRequest) as e:
      call()
    for word in words:
      self.assertIn(word, e.exception.message)
    return e.exception

  def test_members_of_all_kinds(self):
    members = {
      'flag': False,
      'count': 3,
      'share': 1,
      'text': 'é',
      'one': 'a',
      'many': ['a', 'b'],
      'ids': [0, 5],
      'inner': {'x': True},
      'null': None,
    }
    found = fields.Fields(members)
    self.assertIs(found.flag('flag'), False)
    self.assertEqual(found.integer('count', 1, 3), 3)
    self.assertIsInstance(found.number('share', 0, 1), float)
    self.assertEqual(found.text('text'), 'é')
    self.assertEqual(found.texts('one', 1), ['a'])
    self.assertEqual(found.texts('many', 2), ['a', 'b'])
    self.assertEqual(found.ids('ids', 2), [0, 5])
    self.assertTrue(found.members('inner').flag('x'))
    self.assertNotIn('null', found)
    self.assertIsNone(found.integer('absent'))
    self.assertEqual(found.texts('absent', 1), [])
    found.finish()

  @parameterized.parameters(
    ('flag', 1),
    ('integer', 1.0),
    ('integer', True),
    ('integer', 2**31),
    ('number', '1', 0, 1),
    ('number', True, 0, 1),
    ('number', 2, 0, 1),
    ('number', 10**400, 0, 1),
    ('text', 5),
    ('text', '\udc00'),
    ('texts', ['a', 5], 9),
    ('texts', ['a', 'b'], 1),
    ('texts', ['\ud800'], 9),
    ('ids', 'a', 9),
    ('ids', [1, True], 9),
    ('ids', [-1], 9),
    ('ids', [1, 2], 1),
    ('members', [1]),
  )
  def test_what_does_not_fit_is_named(self, method, value, *bounds):
    found = fields.Fields({'x': value}, 'outer.')
    error = self.assert_refused(lambda: getattr(found, method)('x', *bounds))
    self.assertEqual(error.param, 'outer.x')
    self.assertLess(len(error.message), 200)

  def test_what_nobody_took_is_refused(self):
    found = fields.Fields({'a': 1, 'b': 2})
    found.take_harmless(('a',))
    self.assert_refused(found.finish, 'b')

  def test_values_that_ask_for_nothing(self):
    neutral = {'penalty': (0,), 'tools': ([],), 'prediction': ()}
    found = fields.Fields({'penalty': 0.0, 'tools': []})
    found.refuse_unless(neutral)
    found.finish()
    for members in ({'penalty': 0.1}, {'tools': [1]}, {'prediction': {}}):
      found = fields.Fields(members)
      self.assert_refused(lambda: found.refuse_unless(neutral), *members)  # noqa: B023

  @parameterized.parameters(
    b'', b'[1]', b'{"a": Infinity}', b'\xff', b'[' * 10**5
  )
  def test_what_is_no_object(self, body):
    self.assert_refused(lambda: fields.parse_object(body), 'the body is')


if __name__ == '__main__':
  absltest.main()
