"""Tests manifests: as text, strict parsing, and differences as text."""

import dataclasses
import json

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.aot import manifest as manifest_lib
from saxml_ext.engine import config as config_lib

_CONFIGURATION = manifest_lib.Configuration(
  serving=manifest_lib.Serving('params.Of', {'BATCH_SIZE': '8'}),
  target=manifest_lib.Target(
    'cpu', 'x86_64', 1, features=('avx2', 'fma'), threads=2
  ),
  versions={'jax': '0.10.2', 'engine': 'abc'},
  mesh=(1, 1, 4),
  model=config_lib.ModelConfig(2, 32, 2, 16, 64, 8, 96),
  engine=config_lib.EngineConfig(eos_id=None, early_stopping='never'),
  weights={
    'head': manifest_lib.Leaf((32, 96), 'int8', (None, 'data+model')),
    'head_bias': manifest_lib.Leaf((96,), 'float32', (None,)),
  },
)
_PROGRAM = manifest_lib.Program(
  key='decode 2',
  dropped=(3,),
  memory=manifest_lib.Memory(6, 5, 4, 3, 2, 1),
  files={'executable': manifest_lib.File('decode_2.executable', 'f0', 7)},
)
_MANIFEST = manifest_lib.Manifest(
  format=manifest_lib.FORMAT,
  configuration=_CONFIGURATION,
  xla_flags={'xla_flag': 'true'},
  programs=(_PROGRAM,),
)


def _changed(**changes) -> manifest_lib.Configuration:
  return dataclasses.replace(_CONFIGURATION, **changes)


class TextTest(parameterized.TestCase):
  def test_manifest_survives_a_round_trip(self):
    text = manifest_lib.dumps(_MANIFEST)
    self.assertEqual(manifest_lib.loads(text), _MANIFEST)
    self.assertEqual(manifest_lib.dumps(manifest_lib.loads(text)), text)

  @parameterized.parameters(
    ('{', 'it is not JSON'),
    ('[]', 'its format is None, but this program reads 1'),
    ('{"format": 2}', 'its format is 2, but this program reads 1'),
    ('{"format": 1}', 'it: Object missing required field `configuration`'),
  )
  def test_other_text_is_refused(self, text, message):
    with self.assertRaisesRegex(ValueError, message):
      manifest_lib.loads(text)

  @parameterized.parameters(
    (
      ('programs', 0, 'key'),
      5,
      r'programs\[0\].key: Expected `str`, got `int`',
    ),
    (('programs', 0, 'files'), {}, "'decode 2' has no file 'executable'"),
    (
      ('programs',),
      [_PROGRAM, _PROGRAM],
      'not sorted, or have equal keys',
    ),
    (('configuration', 'more'), 1, 'configuration.more is 1 instead of None'),
    (
      ('configuration', 'engine', 'num_slots'),
      0,
      'configuration.engine: num_slots is 0, but must be at least 1',
    ),
    (
      ('configuration', 'engine', 'num_slots'),
      True,
      'configuration.engine.num_slots: Expected `int`, got `bool`',
    ),
    (
      ('configuration', 'engine', 'eos_id'),
      'x',
      'configuration.engine.eos_id: Expected `int | null`, got `str`',
    ),
    (
      ('configuration', 'weights', 'head', 'shape'),
      [1, '2'],
      r'weights\[...\].shape\[1\]: Expected `int`, got `str`',
    ),
  )
  def test_every_value_is_checked(self, path, value, message):
    data = json.loads(manifest_lib.dumps(_MANIFEST))
    at = data
    for step in path[:-1]:
      at = at[step]
    at[path[-1]] = value
    text = json.dumps(data, default=dataclasses.asdict)
    with self.assertRaisesRegex(ValueError, message):
      manifest_lib.loads(text)

  def test_fields_with_defaults_are_required(self):
    data = json.loads(manifest_lib.dumps(_MANIFEST))
    del data['configuration']['engine']['num_slots']
    with self.assertRaisesRegex(ValueError, 'num_slots is None instead of 32'):
      manifest_lib.loads(json.dumps(data))


class DifferencesTest(parameterized.TestCase):
  def test_equal_configurations_have_no_differences(self):
    self.assertEqual(
      manifest_lib.differences(_CONFIGURATION, _CONFIGURATION), []
    )

  def test_name_of_the_params_is_no_difference(self):
    here = _changed(serving=manifest_lib.Serving('params.Other', {}))
    self.assertEqual(manifest_lib.differences(_CONFIGURATION, here), [])

  @parameterized.parameters(
    (
      dict(versions={'jax': '0.11.0', 'engine': 'abc'}),
      'versions.jax: the set has "0.10.2", here it is "0.11.0"',
    ),
    (dict(mesh=(1, 2, 2)), 'mesh: the set has [1, 1, 4], here it is [1, 2, 2]'),
    (
      dict(engine=config_lib.EngineConfig(None, early_stopping=True)),
      'engine.early_stopping: the set has "never", here it is true',
    ),
    (
      dict(weights={'head': _CONFIGURATION.weights['head']}),
      'weights.head_bias: the set has {"dtype": "float32", "shape": [96],'
      ' "spec": [null]}, here it is nothing',
    ),
    (
      dict(
        target=manifest_lib.Target(
          'cpu', 'x86_64', 1, features=('avx2', 'avx512f', 'fma'), threads=2
        )
      ),
      'target.features: the set lacks avx512f, which is present here',
    ),
    (
      dict(
        target=manifest_lib.Target(
          'cpu', 'x86_64', 1, features=('fma', 'sse'), threads=2
        )
      ),
      'target.features: the set has avx2, which is missing here; the set lacks'
      ' sse, which is present here',
    ),
  )
  def test_every_difference_is_named(self, changes, expected):
    here = _changed(**changes)
    self.assertEqual(manifest_lib.differences(_CONFIGURATION, here), [expected])

  @parameterized.parameters(
    (dict(), True),
    (dict(versions={'jax': '0.11.0', 'engine': 'abc'}), True),
    (dict(versions={'jax': '0.10.2', 'engine': 'abd'}), False),
    (dict(mesh=()), False),
    (dict(versions={'jax': '0.11.0', 'engine': 'abc'}, mesh=()), False),
  )
  def test_only_other_versions_allow_stablehlo(self, changes, expected):
    here = _changed(**changes)
    self.assertEqual(
      manifest_lib.only_versions_differ(_CONFIGURATION, here), expected
    )


if __name__ == '__main__':
  absltest.main()
