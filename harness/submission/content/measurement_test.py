import json

from absl.testing import absltest
from absl.testing import parameterized

from harness.results import entry as entry_lib
from harness.submission.content import measurement


def _entry(benchmark='gptj', system='cell', notes=None, **parameters):
  return entry_lib.Entry(
    benchmark=benchmark,
    model=f'{benchmark}-99',
    scenario='Offline',
    round='v4.0',
    system=system,
    parameters=parameters,
    command=(),
    began='',
    ended='',
    notes=notes or {},
  )


class MeasurementTest(parameterized.TestCase):
  def test_what_a_result_tells(self):
    record = measurement.record(
      _entry(params='a.GPTJ4TokenizedINT8BS32', checkpoint='/m/checkpoint_00/'),
      {},
    )
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
    ({'precision': 'float16'}, 'fp16'),
    ({'params': 'GPTJ4TokenizedFP16BS32'}, 'bf16'),
    ({'params': 'TinyFP32'}, 'fp32'),
    ({'precision': 'int8', 'params': 'TinyFP32'}, 'int8'),
    ({'params': 'Other'}, None),
    ({}, None),
  )
  def test_weight_type(self, parameters, expected):
    self.assertEqual(measurement.weight_type(_entry(**parameters)), expected)

  def test_the_user_goes_before_notes_and_those_before_names(self):
    entry = _entry(
      system='pytorch',
      precision='fp32',
      notes={
        'measurements': {'weight_data_types': 'fp16', 'retraining': 'yes'}
      },
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


if __name__ == '__main__':
  absltest.main()
