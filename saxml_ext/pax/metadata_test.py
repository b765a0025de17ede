"""Tests of paxml's JSON metadata."""

import json

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.pax import errors
from saxml_ext.pax import metadata

_SPECS = {
  'mdl_vars.params.lm.final_ln.scale': metadata.ArraySpec((4,), 'float32'),
  'mdl_vars.params.lm.final_ln.bias': metadata.ArraySpec((4,), 'bfloat16'),
}


class MetadataTest(parameterized.TestCase):
  def test_encodes_the_tree_that_paxml_reads(self):
    document = json.loads(metadata.encode(_SPECS))
    self.assertEqual(document['version'], 1.1)
    final_ln = document['train_state_metadata']['mdl_vars']['params']['lm'][
      'final_ln'
    ]
    self.assertEqual(
      final_ln['scale'],
      {
        '_array_metadata_tag': True,
        'is_optax_masked_node': False,
        'unpadded_shape': [4],
        'dtype': 'float32',
      },
    )

  def test_bytes_do_not_depend_on_order(self):
    backwards = dict(reversed(_SPECS.items()))
    self.assertEqual(metadata.encode(_SPECS), metadata.encode(backwards))

  def test_round_trip(self):
    self.assertEqual(metadata.decode(metadata.encode(_SPECS), 'f'), _SPECS)

  def test_version_1_0_describes_no_variables(self):
    self.assertEqual(metadata.decode(b'{"version": 1.0}', 'f'), {})

  @parameterized.parameters(
    (b'', 'not the metadata'),
    (b'[]', 'not the metadata'),
    (b'{"version": 7}', 'f has version 7'),
    (
      b'{"version": 1.1, "train_state_metadata": {"w": {"_array_metadata_tag"'
      b': true, "unpadded_shape": [-1], "dtype": "float32"}}}',
      r'f: w has shape \[-1\]',
    ),
  )
  def test_refuses(self, data, message):
    with self.assertRaisesRegex(errors.CheckpointError, message):
      metadata.decode(data, 'f')

  def test_refuses_bottomless_nesting(self):
    with self.assertRaisesRegex(errors.CheckpointError, 'not the metadata'):
      metadata.decode(b'{"version":' + b'[' * 100_000, 'f')


if __name__ == '__main__':
  absltest.main()
