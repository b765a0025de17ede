"""Tests parsing the fields of a request."""

import json
from typing import Annotated, ClassVar

from absl.testing import absltest
from absl.testing import parameterized
import msgspec

from saxml_ext.http.protocol import fields
from saxml_ext.http.protocol import problems


class _Inner(fields.Request):
  x: bool | None = None


class _Request(fields.Request):
  flag: bool | None = None
  RANGES: ClassVar = {
    'integer': (-(2**31), 2**31 - 1),
    'count': (1, 3),
    'number': (0, 1),
  }

  NESTED: ClassVar = {'members': _Inner}

  integer: int | None = None
  count: int | None = None
  number: float | None = None
  text: str | None = None
  texts: str | Annotated[list[str], msgspec.Meta(max_length=2)] | None = None
  ids: (
    Annotated[
      list[Annotated[int, msgspec.Meta(ge=0)]], msgspec.Meta(max_length=2)
    ]
    | None
  ) = None
  members: _Inner | None = None


class _Neutral(fields.Request):
  HARMLESS: ClassVar = ('a',)
  NEUTRAL: ClassVar = {'penalty': (0,), 'tools': ([],), 'prediction': ()}
  ELSEWHERE: ClassVar = {'prompt': 'send it to /v1/completions'}


def _lenient():
  return fields.UnknownFields(strict=False)


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
      'number': 1,
      'text': 'é',
      'texts': 'a',
      'ids': [0, 5],
      'members': {'x': True},
      'integer': None,
    }
    request = fields.read(members, _Request)
    self.assertIs(request.flag, False)
    self.assertEqual(request.count, 3)
    self.assertIsInstance(request.number, float)
    self.assertEqual(request.text, 'é')
    self.assertEqual(request.texts, 'a')
    self.assertEqual(request.ids, [0, 5])
    self.assertTrue(request.members.x)
    self.assertIsNone(request.integer)
    request = fields.read({'texts': ['a', 'b'], 'flag': None}, _Request)
    self.assertEqual(request.texts, ['a', 'b'])
    self.assertIsNone(request.flag)

  @parameterized.parameters(
    ('flag', 1, 'is not a boolean'),
    ('integer', 1.5, '1.5 is not a whole number'),
    ('integer', '1', '"1" is not a whole number'),
    ('integer', True, 'true is not a whole number'),
    ('integer', 2**31, 'is not from -2147483648 to 2147483647'),
    ('count', 0, '0 is not from 1 to 3'),
    ('number', '1', 'is not a number'),
    ('number', True, 'is not a number'),
    ('number', 2, '2 is not from 0 to 1'),
    ('number', 10**400, 'is not from 0 to 1'),
    ('text', 5, '5 is not a string'),
    ('text', '\udc00', "the body is not valid JSON: 'text': "),
    ('texts', ['a', 5], '5 is not a string'),
    ('texts', ['a', 'b', 'c'], '3 were sent, more than the limit of 2'),
    ('texts', ['\ud800'], "the body is not valid JSON: 'texts[0]': "),
    ('ids', 'a', '"a" is not an array'),
    ('ids', [1, True], 'true is not a whole number'),
    ('ids', [-1], '-1 '),
    ('ids', [1, 2, 3], '3 were sent, more than the limit of 2'),
    ('members', [1], '[1] is not an object'),
  )
  def test_invalid_fields_are_named(self, name, value, text):
    def read():
      body = fields.parse_object(json.dumps({name: value}).encode())
      return fields.read(body, _Request, 'outer.')

    error = self.assert_refused(read, text)
    unread = error.message.startswith('the body is')
    self.assertEqual(
      error.param.removesuffix('[0]'), name if unread else f'outer.{name}'
    )
    self.assertLess(len(error.message), 200)

  def test_fields_left_over_are_refused(self):
    body = {'a': 1, 'b': 2}
    error = self.assert_refused(lambda: fields.read(body, _Neutral), 'b')
    self.assertEqual(error.param, 'b')
    inner = {'members': {'y': 1}}
    error = self.assert_refused(lambda: fields.read(inner, _Request))
    self.assertEqual(error.param, 'members.y')

  def test_neutral_values_are_accepted(self):
    fields.read({'penalty': 0.0, 'tools': [], 'prediction': None}, _Neutral)
    for members in (
      {'penalty': 0.1},
      {'penalty': False},
      {'tools': [1]},
      {'prediction': {}},
    ):
      self.assert_refused(lambda m=members: fields.read(m, _Neutral), *members)

  def test_fields_of_other_routes_have_a_hint(self):
    error = self.assert_refused(
      lambda: fields.read({'prompt': 'x'}, _Neutral, unknown=_lenient()),
      'prompt: send it to /v1/completions',
    )
    self.assertEqual(error.param, 'prompt')
    fields.read({'prompt': None}, _Neutral)

  def test_whole_numbers_may_have_a_point(self):
    result = fields.read(
      {'count': 2.0, 'number': 1.0, 'ids': [3.0, 4]}, _Request
    )
    self.assertEqual((result.count, result.ids), (2, [3, 4]))
    self.assertIsInstance(result.count, int)
    self.assertIsInstance(result.number, float)

  def test_unknown_fields_are_ignored_and_logged_once(self):
    unknown = _lenient()
    body = {'chat_id': 'a', 'cuont': 2, 'count': 3, 'members': {'y': 1}}
    with self.assertLogs('absl', 'WARNING') as logs:
      for _ in range(3):
        result = fields.read(body, _Request, unknown=unknown)
    self.assertEqual(result.count, 3)
    lines = [record.getMessage() for record in logs.records]
    self.assertLen(lines, 3)
    self.assertIn('"chat_id", which this server does not know', lines[0])
    self.assertNotIn('Did you mean', lines[0])
    self.assertIn('ignores. Did you mean "count"? --strict', lines[1])
    self.assertIn('"members.y"', lines[2])

  def test_log_of_unknown_fields_is_bounded(self):
    unknown = _lenient()
    with self.assertLogs('absl', 'WARNING') as logs:
      fields.read({'x' * 10**6: 1, 'a\nb': 1}, _Request, unknown=unknown)
      fields.read(
        {f'name{i}': 1 for i in range(10_000)}, _Request, unknown=unknown
      )
    self.assertLen(logs.records, 100)
    for record in logs.records:
      self.assertLess(len(record.getMessage()), 300)
      self.assertNotIn('\n', record.getMessage())

  def test_strict_requests_name_the_nearest_field(self):
    unknown = fields.UnknownFields(strict=True)
    self.assert_refused(
      lambda: fields.read({'cuont': 2}, _Request, unknown=unknown),
      'cuont: this server has no such parameter. Did you mean "count"?',
    )

  def test_schema_describes_the_fields(self):
    properties = fields.schema(_Request)['properties']
    self.assertEqual(
      properties['count'], {'type': 'integer', 'minimum': 1, 'maximum': 3}
    )
    strings = {'type': 'array', 'items': {'type': 'string'}, 'maxItems': 2}
    self.assertEqual(
      properties['texts'], {'oneOf': [{'type': 'string'}, strings]}
    )
    self.assertEqual(
      properties['members']['properties'], {'x': {'type': 'boolean'}}
    )
    properties = fields.schema(_Neutral)['properties']
    self.assertEqual(properties['tools'], {'enum': [[], None]})
    self.assertIn('description', properties['a'])

  @parameterized.parameters(
    b'', b'[1]', b'{"a": Infinity}', b'\xff', b'[' * 10**5
  )
  def test_bodies_that_are_no_object_are_refused(self, body):
    self.assert_refused(lambda: fields.parse_object(body), 'the body is')


class DepthTest(absltest.TestCase):
  def test_large_malformed_bodies_are_refused_at_once(self):
    for count, param in ((9, 'a[9]'), (2**20, None)):
      with self.assertRaisesRegex(problems.BadRequest, 'not valid JSON') as e:
        fields.parse_object(b'{"a": [%sNaN]}' % (b'1,' * count))
      self.assertEqual(e.exception.param, param)

  def test_arrays_and_objects_are_bounded(self):
    body = b'{"a": [%s]}'
    fields.parse_object(body % b','.join([b'[]'] * 49_998))
    with self.assertRaisesRegex(problems.BadRequest, '50001 .* limit'):
      fields.parse_object(body % b','.join([b'{}'] * 49_999))

  def test_levels_of_arrays_and_objects(self):
    for value, levels in (
      (1, 0),
      ('[[]]', 0),
      ([1], 1),
      ([{}, [1]], 2),
      ({'a': [{'b': 1}]}, 3),
    ):
      self.assertFalse(fields.is_deeper(value, levels), value)
      if levels:
        self.assertTrue(fields.is_deeper(value, levels - 1), value)


if __name__ == '__main__':
  absltest.main()
