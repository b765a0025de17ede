"""Tests the docstrings of this repository, and the check itself."""

import ast

from absl.testing import absltest
from absl.testing import parameterized

from tests.house import docstrings
from tests.house import problems
from tests.house import tree


class DocstringsTest(parameterized.TestCase):
  def test_repository_has_no_problems(self):
    paths = tree.files('*.py')
    self.assertEqual(problems.find(docstrings.check, paths), [])

  @parameterized.parameters(
    ('def f(): ...', 'Whether there is room.', 'clause word'),
    ('def f(): ...', 'The rows of a table.', 'not with a verb'),
    ('class A: ...', 'What a run needs.', 'clause word'),
    ('x = 1', 'How runs are made.', 'clause word'),
    ('def f(): ...', 'Returns x.\n\nArgs:\n  x: of the model.', 'noun phrase'),
  )
  def test_odd_docstring_is_a_problem(self, code, text, reason):
    node = ast.parse(code)
    reasons = list(docstrings.reasons(node.body[0], text))
    self.assertLen(reasons, 1)
    self.assertIn(reason, reasons[0])

  def test_a_property_may_be_a_noun_phrase(self):
    (node,) = ast.parse('@property\ndef f(self): ...').body
    self.assertEqual(list(docstrings.reasons(node, 'The rows.')), [])


if __name__ == '__main__':
  absltest.main()
