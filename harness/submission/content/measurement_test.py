import json
import pathlib

from absl.testing import absltest
from absl.testing import parameterized

from harness.results import entry as entry_lib
from harness.submission.content import measurement

_GPTJ = 'saxml.server.pax.lm.params.gptj.'


def _entry(benchmark='gptj', kind='cell', notes=None, **system):
  return entry_lib.Entry(
    benchmark=benchmark,
    model=f'{benchmark}-99',
    scenario='Offline',
    round='v4.0',
    system=kind,
    parameters={'system': system},
    command=(),
    began='',
    ended='',
    notes=notes or {},
  )


class MeasurementTest(parameterized.TestCase):
  def test_what_a_result_tells(self):
    model = {
      'params': _GPTJ + 'GPTJ4TokenizedINT8BS32XLA',
      'checkpoint': '/m/checkpoint_00/',
    }
    # A cell that ran already reported what it served.
    for entry in (_entry(**model), _entry(notes={entry_lib.SERVED: model})):
      record = measurement.record(entry, {})
      self.assertEqual(
        record,
        {
          'input_data_types': 'int32',
          'retraining': 'no',
          'starting_weights_filename': 'checkpoint_00',
          'weight_data_types': 'int8',
          'weight_transformations': (
            'PyTorch checkpoint converted to PAX; weights quantized to int8'
          ),
        },
      )
      self.assertEqual(measurement.problems(record, 'x'), [])
      self.assertEqual(json.loads(measurement.text(record)), record)

  @parameterized.parameters(
    ({'precision': 'bfloat16'}, 'bf16'),
    ({'precision': 'float32'}, 'fp32'),
    ({'precision': 'int8'}, 'int8'),
    ({'params': 'saxml_ext.params.gptj.TinyFP32'}, 'fp32'),
    # Upstream's name says int8, its class quantizes nothing.
    ({'params': _GPTJ + 'GPTJ4TokenizedINT8BS32'}, 'bf16'),
    (
      {
        'params': _GPTJ + 'GPTJ4TokenizedINT8BS32',
        'overrides': {'QUANTIZATION': '"int8"'},
      },
      'int8',
    ),
    ({'params': 'Other'}, None),
    ({}, None),
  )
  def test_weight_type(self, system, expected):
    self.assertEqual(measurement.weight_type(_entry(**system)), expected)

  def test_the_user_goes_before_notes_and_those_before_the_rest(self):
    noted = {'weight_data_types': 'fp16', 'retraining': 'yes'}
    entry = _entry(
      kind='pytorch', precision='float32', notes={'measurements': noted}
    )
    record = measurement.record(entry, {'retraining': 'fine-tuned'})
    self.assertEqual(record['weight_data_types'], 'fp16')
    self.assertEqual(record['retraining'], 'fine-tuned')
    self.assertEqual(record['weight_transformations'], 'none')

  def test_what_nobody_knows(self):
    found = measurement.problems(measurement.record(_entry(), {}), 'my job')
    self.assertLen(found, 1)
    self.assertStartsWith(
      found[0],
      'my job does not say starting_weights_filename, weight_data_types: write',
    )

  def test_file(self):
    path = self.create_tempfile(content='{"retraining": "no"}').full_path
    self.assertEqual(measurement.read(pathlib.Path(path)), {'retraining': 'no'})
    for text, pattern in (
      ('{', 'is no JSON'),
      ('{"a": 1}', 'must hold a JSON'),
    ):
      path = self.create_tempfile(content=text).full_path
      with self.assertRaisesRegex(ValueError, pattern):
        measurement.read(pathlib.Path(path))


if __name__ == '__main__':
  absltest.main()
