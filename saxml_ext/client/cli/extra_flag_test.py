"""Tests of the -extra flag against the recorded table."""

from absl.testing import absltest

from saxml_ext.client.cli import extra_flag
from saxml_ext.client.transport import options as options_lib
from saxml_ext.common import errors
from saxml_ext.common.testing import golden
from saxml_ext.protobuf import common_pb2


class ExtraInputsTest(absltest.TestCase):
  def test_recorded_table(self):
    for row in golden.load('validation.json')['extra_inputs']:
      with self.subTest(row['input']):
        options = options_lib.ModelOptions()
        if row['ok']:
          extra_flag.set_from_text(options, row['input'])
          expected = common_pb2.ExtraInputs.FromString(
            bytes.fromhex(row['extra']['proto_hex'])
          )
          self.assertEqual(options.ToProto(), expected)
          continue
        with self.assertRaises(errors.InvalidArgument) as caught:
          extra_flag.set_from_text(options, row['input'])
        self.assertEqual(caught.exception.wire_text(), row['error'])

  def test_numbers_that_float32_cannot_hold_are_texts(self):
    options = options_lib.ModelOptions()
    extra_flag.set_from_text(options, 'a:1e50,b:1_000,c:nan')
    self.assertEqual(dict(options.ToProto().strings), {'a': '1e50'})
    self.assertCountEqual(options.ToProto().items, ['b', 'c'])


if __name__ == '__main__':
  absltest.main()
