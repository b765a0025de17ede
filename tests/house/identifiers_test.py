"""Tests the check of names on samples."""

import ast

from absl.testing import absltest
from absl.testing import parameterized

from tests.house import identifiers
from tests.house import problems
from tests.house import tree


def _reasons(code: str) -> list[str]:
  return [reason for _, reason in identifiers.check(ast.parse(code))]


class IdentifiersTest(parameterized.TestCase):
  @parameterized.parameters(
    ('found = 1', "'found' does not describe"),
    ('for each in (): ...', "'each' does not describe"),
    ('_TOLD = 1', "'_TOLD' does not describe"),
    ('x = [said for said in y]', "'said' does not describe"),
    ('def f(*, asked): ...', "'asked' does not describe"),
    ('lambda wanted: 1', "'wanted' does not describe"),
    ('self._news = 1', "'_news' does not describe"),
    ('class Reach: ...', "'Reach' does not describe"),
    ('async def place(): ...', "'place' does not describe"),
    ('with f() as found: ...', "'found' does not describe"),
    ('if found := f(): ...', "'found' does not describe"),
    ('def of(x): ...', "'of' begins with"),
    ('def _of_flags(x): ...', "'_of_flags' begins with"),
    ('def test_who_hangs_up(self): ...', "clause word 'who'"),
    ('def test_calls_forget_nobody(self): ...', "contains 'forget'"),
    ('async def test_errors_are_told(self): ...', "contains 'told'"),
  )
  def test_odd_name_is_a_problem(self, code, reason):
    reasons = _reasons(code)
    self.assertLen(reasons, 1)
    self.assertIn(reason, reasons[0])

  @parameterized.parameters(
    'candidates = found',  # It only reads the name.
    'not_found = placement = 1',
    'f(each=1)',
    'x.place()',
    'def from_flags(x): ...',
    'def office(): ...',
    'offset = 1',
    'def test_offline(self): ...',
    'def test_disconnected_client_frees_its_slot(self): ...',
    'def test_without_key_request_is_refused(self): ...',
    'class TestOfNobody: ...',
  )
  def test_plain_name_is_accepted(self, code):
    self.assertEqual(_reasons(code), [])

  def test_repository_has_no_odd_names(self):
    paths = tree.files('*.py')
    self.assertGreater(len(paths), 500)
    self.assertEmpty(problems.find(identifiers.check, paths))

  def test_problem_has_its_line(self):
    module = ast.parse('x = 1\n\nfound = 2\n')
    self.assertEqual([line for line, _ in identifiers.check(module)], [3])


if __name__ == '__main__':
  absltest.main()
