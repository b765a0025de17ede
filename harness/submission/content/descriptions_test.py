import json
import pathlib

from absl.testing import absltest
from absl.testing import parameterized

from harness.results import entry as entry_lib
from harness.submission.content import descriptions
from harness.submission.testing import jobs
from saxml_ext.common import files

_GPTJ = 'saxml.server.pax.lm.params.gptj.'
_TINY = 'saxml_ext.params.gptj.TinyFP32'
_SAMPLING = 'saxml_ext.params.gptj.TinySampleFP32'


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
  def test_measurement_has_the_values_of_a_result(self):
    model = {
      'params': _GPTJ + 'GPTJ4TokenizedINT8BS32XLA',
      'checkpoint': '/m/checkpoint_00/',
    }
    # A cell that was already running reports its model in the notes.
    for entry in (_entry(**model), _entry(notes={entry_lib.SERVED: model})):
      record = descriptions.measurements(entry, {})
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
      self.assertEqual(list(descriptions.measurement_problems(record, 'x')), [])
      self.assertEqual(json.loads(files.encode_json(record)), record)

  @parameterized.parameters(
    ({'precision': 'bfloat16'}, 'bf16'),
    ({'precision': 'float32'}, 'fp32'),
    ({'precision': 'int8'}, 'int8'),
    ({'params': 'saxml_ext.params.gptj.TinyFP32'}, 'fp32'),
    # The upstream name contains INT8, but its class quantizes nothing.
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
    self.assertEqual(descriptions.weight_type(_entry(**system)), expected)

  def test_values_of_the_user_precede_notes_and_defaults(self):
    noted = {'weight_data_types': 'fp16', 'retraining': 'yes'}
    entry = _entry(
      kind='pytorch', precision='float32', notes={'measurements': noted}
    )
    record = descriptions.measurements(entry, {'retraining': 'fine-tuned'})
    self.assertEqual(record['weight_data_types'], 'fp16')
    self.assertEqual(record['retraining'], 'fine-tuned')
    self.assertEqual(record['weight_transformations'], 'none')

  def test_unknown_values_are_a_problem(self):
    values = descriptions.measurements(_entry(), {})
    texts = list(descriptions.measurement_problems(values, 'my job'))
    self.assertLen(texts, 1)
    self.assertStartsWith(
      texts[0],
      'my job lacks starting_weights_filename, weight_data_types. Write',
    )

  def test_file(self):
    path = self.create_tempfile(content='{"retraining": "no"}').full_path
    self.assertEqual(
      descriptions.read_measurements(pathlib.Path(path)), {'retraining': 'no'}
    )
    for text, pattern in (
      ('{', 'is not JSON'),
      ('{"a": 1}', "has 'a'. Use only input_data_types"),
      ('{"retraining": 1}', 'retraining is 1. Write a text'),
      ('{"retraining": ""}', "retraining is ''. Write a text"),
    ):
      path = self.create_tempfile(content=text).full_path
      with self.assertRaisesRegex(ValueError, pattern):
        descriptions.read_measurements(pathlib.Path(path))


class ServingTest(parameterized.TestCase):
  @parameterized.parameters(
    (_entry(params=_TINY), 4),
    (_entry(params=_TINY, overrides={'BEAM_SIZE': '2'}), 2),
    (_entry(params=_TINY, overrides={'USE_BEAM_SEARCH': 'false'}), 1),
    (_entry(params=_SAMPLING), 1),
    (_entry(params='some.other.Params'), None),
    (_entry(model_id='/sax/test/gptj'), None),
    (_entry(notes={'served': {'params': _TINY}}), 4),
    (_entry(kind='reference', beam_size=None), 4),
    (_entry(kind='reference', beam_size='1'), 1),
  )
  def test_beams(self, entry, expected):
    self.assertEqual(descriptions.beams(entry), expected)

  def test_prefix_cache(self):
    name = 'PRECOMPUTE_KV_CACHE_PREFIX'
    self.assertIsNone(descriptions.prefix_cache(_entry(params=_TINY)))
    overrides = {name: '"Below is"'}
    cached = _entry(params=_TINY, overrides=overrides)
    self.assertEqual(descriptions.prefix_cache(cached), 'Below is')
    off = _entry(params=_TINY, overrides={name: 'null'})
    self.assertIsNone(descriptions.prefix_cache(off))


def _whole(**values: str) -> dict[str, str]:
  fixed = {
    'submitter': 'Example',
    'division': 'open',
    'system_name': 'box',
    'system_type': 'edge',
  }
  return jobs.system_description() | fixed | values


class SystemJsonTest(absltest.TestCase):
  def test_names_of_folders(self):
    for name, expected in (
      ('tpu_v5e_x4', 'tpu_v5e_x4'),
      ('Two Xeons, 512 GB', 'Two_Xeons_512_GB'),
      ('../..', ''),
      ('.hidden', 'hidden'),
    ):
      self.assertEqual(descriptions.system_id(name), expected)

  def test_flags_precede_the_file_and_detected_values(self):
    record = descriptions.merged(
      {'cooling': 'detected', 'framework': 'detected', 'status': 'rdi'},
      {'cooling': 'given', 'status': 'preview'},
      {'status': 'available'},
      {},
    )
    self.assertEqual(record['framework'], 'detected')
    self.assertEqual(record['cooling'], 'given')
    self.assertEqual(record['status'], 'available')
    self.assertEqual(record['accelerator_on-chip_memories'], '')

  def test_notes_are_added(self):
    record = descriptions.merged(
      {'hw_notes': 'Power limit 250 W'}, {}, {}, {'hw_notes': 'ECC off'}
    )
    self.assertEqual(record['hw_notes'], 'Power limit 250 W. ECC off')
    notes = {'sw_notes': 'Nightly', 'hw_notes': ''}
    record = descriptions.merged({}, {}, {}, notes)
    self.assertEqual(record['sw_notes'], 'Nightly')

  def test_values_become_texts(self):
    record = descriptions.merged(
      {'accelerators_per_node': 0, 'is_network': True, 'cooling': None},
      {},
      {},
      {},
    )
    self.assertEqual(record['accelerators_per_node'], '0')
    self.assertEqual(record['is_network'], 'True')
    self.assertNotIn('cooling', record)

  def test_whole_description_has_no_problem(self):
    self.assertEqual(list(descriptions.system_problems(_whole())), [])
    self.assertEqual(json.loads(files.encode_json(_whole())), _whole())

  def test_all_missing_values_are_reported_together(self):
    texts = list(
      descriptions.system_problems(_whole(cooling='', framework='TODO'))
    )
    self.assertLen(texts, 1)
    self.assertIn('lacks cooling, framework.', texts[0])

  def test_counts_are_whole_numbers(self):
    self.assertRegex(
      list(descriptions.system_problems(_whole(accelerators_per_node='N/A')))[
        0
      ],
      "accelerators_per_node is 'N/A'. Write a whole number",
    )

  def test_values_of_a_few_choices(self):
    self.assertRegex(
      list(descriptions.system_problems(_whole(status='on sale')))[0],
      "status is 'on sale'",
    )

  def test_networked_system(self):
    texts = list(
      descriptions.system_problems(_whole(is_network='true', network_rate='10'))
    )
    self.assertLen(texts, 1)
    self.assertIn('nic_loadgen', texts[0])
    self.assertNotIn('network_rate', texts[0])


if __name__ == '__main__':
  absltest.main()
