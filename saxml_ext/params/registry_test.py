"""Tests of the registry of serving params."""

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.common import errors
from saxml_ext.params import registry


@registry.register('test.module.FirstModel', aliases=('test.Alias',))
class _First:
  pass


@registry.register('test.module.SecondModel')
class _Second(_First):
  pass


class RegistryTest(parameterized.TestCase):
  def test_finds_classes_by_name_and_alias(self):
    self.assertIs(registry.lookup('test.module.FirstModel'), _First)
    self.assertIs(registry.lookup('test.Alias'), _First)
    self.assertIs(registry.lookup('test.module.SecondModel'), _Second)

  def test_lists_names_sorted(self):
    self.assertEqual(
      registry.names(),
      ['test.Alias', 'test.module.FirstModel', 'test.module.SecondModel'],
    )

  @parameterized.parameters(
    ('test.module.FirstModle', 'test.module.FirstModel'),
    ('FirstModel', 'test.module.FirstModel'),
    ('elsewhere.secondmodel', 'test.module.SecondModel'),
  )
  def test_suggests_what_may_be_meant(self, wrong, right):
    with self.assertRaisesRegex(
      errors.InvalidArgument, f"'{wrong}'. Did you mean {right}"
    ):
      registry.lookup(wrong)

  def test_lists_everything_when_nothing_is_near(self):
    with self.assertRaisesRegex(
      errors.InvalidArgument, 'Available: test.Alias, test.module.FirstModel'
    ):
      registry.lookup('zzz')

  def test_refuses_a_taken_name(self):
    with self.assertRaisesRegex(ValueError, 'already registered by _First'):
      registry.register('test.Alias')(_Second)

  @parameterized.parameters('', '1abc', 'a b', 'a/b', 'a\n', 'é')
  def test_refuses_a_name_that_cannot_be_published(self, name):
    with self.assertRaisesRegex(ValueError, 'is not a model path'):
      registry.register(name)(_Second)


if __name__ == '__main__':
  absltest.main()
