"""Tests of the creation of classes from tables."""

from absl.testing import absltest

from saxml_ext.families import servable
from saxml_ext.params import all_params  # noqa: F401 Registers them.
from saxml_ext.params import gptj
from saxml_ext.params import lm_cloud
from saxml_ext.params import published
from saxml_ext.params import registry
from saxml_ext.params import template

_TABLE = {
  'test.a._Base': servable.Params('Base.', BATCH_SIZE=3),
  'test.a.First': servable.Params(
    """First.

    More.
    """,
    '_Base',
    TOP_K=7,
    aliases=('test.First',),
  ),
  'test.b.Second': servable.Params('Second.', 'test.a.First', TOP_K=8),
}


class ClassesTest(absltest.TestCase):
  def test_classes_of_a_table(self):
    made = registry.register_table(_TABLE)
    self.assertEqual(list(made), ['_Base', 'First', 'Second'])
    self.assertEqual(
      made['Second'].__mro__[:4],
      (*list(made.values())[::-1], template.ServableLMParams),
    )
    self.assertEqual(made['Second'].BATCH_SIZE, 3)
    self.assertEqual((made['First'].TOP_K, made['Second'].TOP_K), (7, 8))
    self.assertEqual(made['First'].__doc__, 'First.\n\nMore.')
    self.assertIs(registry.lookup('test.First'), made['First'])
    self.assertNotIn('test.a._Base', registry.names())
    self.assertEqual(registry.register_table(_TABLE), made)

  def test_modules_have_the_classes_of_their_family(self):
    package = 'saxml_ext.params.gptj.'
    self.assertIs(gptj.AnyGPTJ, registry.lookup(package + 'AnyGPTJ'))
    package = 'saxml.server.pax.lm.params.'
    self.assertIs(published.GPTJ, registry.lookup(package + 'gptj.GPTJ'))
    name = 'LmCloudSpmd2BTest'
    self.assertIs(
      getattr(lm_cloud, name), registry.lookup(f'{package}lm_cloud.{name}')
    )


if __name__ == '__main__':
  absltest.main()
