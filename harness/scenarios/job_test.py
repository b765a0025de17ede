import dataclasses
import json
import os
import shutil
from unittest import mock

from absl.testing import absltest
from absl.testing import flagsaver

from harness.benchmarks import all as benchmarks
from harness.benchmarks import gptj
from harness.benchmarks import llama
from harness.loadgen import loadgen_log
from harness.rules import rounds
from harness.scenarios import job as job_lib
from harness.scenarios import load
from harness.scenarios import session as session_lib
from harness.systems import launch
from saxml_ext.client.testing import fake_cell
from serve import progress as progress_lib

_PARAMS = 'saxml.server.pax.lm.params.gptj'


class JobTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._cache = self.create_tempdir().full_path

  def _config(self, scenario=rounds.OFFLINE, **values) -> job_lib.Job:
    values = {'cache_dir': self._cache, 'sample_count': 4} | values
    with flagsaver.flagsaver(**values):
      *_, [config] = job_lib.jobs([scenario])
    return config

  def test_default_is_the_bundled_model_in_a_cell_of_its_own(self):
    config = self._config()
    self.assertIsInstance(config.system, launch.OwnCell)
    self.assertIsNone(config.system.checkpoint)
    self.assertEqual(
      config.system.jax_cache_dir, os.path.join(self._cache, 'jax')
    )
    self.assertEqual(config.modes, ('accuracy', 'performance'))
    self.assertEqual(config.load.round, 'v5.0')
    self.assertIsNone(config.load.execution_mode)
    # The answers are compared with the bundled reference, also if the bundled
    # articles are named by path.
    copied = shutil.copy(gptj.BUNDLE.dataset, self.create_tempdir().full_path)
    for made in (config, self._config(dataset_path=copied)):
      self.assertEqual(made.task.inputs['reference'], gptj.BUNDLE.reference)

  def test_llama_is_a_job_with_its_own_model_and_search(self):
    config = self._config(model='llama3.1-8b')
    self.assertIsInstance(config.system, launch.OwnCell)
    self.assertEqual(
      config.system.params, 'saxml_ext.params.llama.TinyTokenizedFP32'
    )
    self.assertIs(config.task.benchmark, llama.LLAMA)
    self.assertEqual(config.load.round, 'v6.1')
    self.assertEqual(config.task.inputs['reference'], llama.BUNDLE.reference)
    self.assertEqual(config.task.samples.benchmark, 'llama3_1-8b')
    self.assertEqual(config.task.samples.max_input_length, 1024)
    prompt = config.task.samples.tokenizer_path
    self.assertEqual(prompt, llama.BUNDLE.tokenizer)
    with mock.patch.dict(os.environ, GPTJ_BEAM_SIZE='2'):
      reference = self._config(model='llama3.1-8b', system='reference')
    self.assertIsNone(reference.system.parameters['beam_size'])

  def test_another_llama(self):
    model = self._model(max_position_embeddings=131072)
    config = self._config(
      model='llama3.1-8b', checkpoint=model, system='reference'
    )
    self.assertEqual(config.task.samples.max_input_length, 2668)
    self.assertNotIn('reference', config.task.inputs)

  def test_llama_streams_in_a_cell(self):
    name = 'ENABLE_GENERATE_STREAM'
    for scenario in llama.LLAMA.scenarios:
      config = self._config(scenario, model='llama3.1-8b')
      self.assertEqual(config.system.overrides, {name: 'true'})
    config = self._config(
      rounds.SERVER, model='llama3.1-8b', override=[f'{name}=false', 'TOP_K=1']
    )
    self.assertEqual(config.system.overrides, {name: 'false', 'TOP_K': '1'})
    self.assertEqual(self._config(rounds.SERVER).system.overrides, {})
    config = self._config(
      rounds.SINGLE_STREAM, model='llama3.1-8b-edge', system='engine'
    )
    self.assertEqual(config.load.round, 'v6.1')

  def test_scenarios_that_a_benchmark_does_not_have_are_refused(self):
    for model, scenario, known in (
      ('llama3.1-8b', rounds.SINGLE_STREAM, 'Offline, Server, Interactive'),
      ('llama3.1-8b-edge', rounds.SERVER, 'Offline, SingleStream'),
      ('gptj-99', rounds.INTERACTIVE, 'Offline, Server, SingleStream, Multi'),
      ('bert-99', rounds.INTERACTIVE, 'Offline, Server, SingleStream, Multi'),
    ):
      with self.assertRaisesRegex(
        ValueError, f'{model} has no scenario {scenario}. Available: {known}'
      ):
        self._config(scenario, model=model)

  def test_unsupported_option_of_llama_is_refused_by_name(self):
    for scenario, changes, message in (
      (
        rounds.INTERACTIVE,
        {'system': 'reference'},
        'reference does not report first tokens.*Interactive.*--system=engine',
      ),
      (
        rounds.SERVER,
        {'target_latency_ms': 9.0},
        '--target_latency_ms=9 has no effect in Server of.* 2000 ms .* 100 ms',
      ),
      (
        rounds.INTERACTIVE,
        {'target_latency_ms': 9.0},
        '--target_latency_ms has no effect with --scenario=Interactive',
      ),
      (rounds.OFFLINE, {'round': 'v5.0'}, 'v5.0 has no llama3.1-8b.*v5.1'),
      (
        rounds.OFFLINE,
        {'system': 'network', 'sut_server': ['h:1']},
        '--system=network does not support llama3_1-8b.*cell, engine',
      ),
    ):
      with self.assertRaisesRegex(ValueError, message):
        self._config(scenario, model='llama3.1-8b', **changes)

  def test_compliance_of_llama_needs_its_end_ids(self):
    values = {'model': 'llama3.1-8b', 'mode': ['compliance']}
    # Source: generation_config.json of the bundled model.
    for changes, ids in (
      ({}, [4092, 4095]),
      ({'system': 'reference'}, [4092, 4095]),
      ({'override': ['STOP_TOKEN_IDS=[7,8]']}, [7, 8]),
      ({'override': ['EOS_ID=7']}, [7]),
      ({'system': 'engine', 'override': ['STOP_TOKEN_IDS=9']}, [4092, 4095]),
    ):
      config = self._config(**values, **changes)
      self.assertEqual(config.task.parameters['end_ids'], ids)
    self.assertNotIn(
      'end_ids', self._config(model='llama3.1-8b').task.parameters
    )
    pax = self._model()
    with open(os.path.join(pax, 'gptj_config.json'), 'w') as file:
      json.dump({'eos_token_id': 3, 'stop_token_ids': [3, 5]}, file)
    config = self._config(**values, checkpoint=pax)
    self.assertEqual(config.task.parameters['end_ids'], [3, 5])
    os.remove(os.path.join(pax, 'config.json'))
    os.remove(os.path.join(pax, 'gptj_config.json'))
    with self.assertRaisesRegex(
      ValueError, 'name none.*STOP_TOKEN_IDS=.128001'
    ):
      self._config(**values, checkpoint=pax)
    with self.assertRaisesRegex(ValueError, 'edge has no compliance tests'):
      self._config(**values | {'model': 'llama3.1-8b-edge'})

  def _model(self, **sizes) -> str:
    """Returns the directory of another model with its own tokenizer."""
    directory = self.create_tempdir().full_path
    shutil.copy(gptj.BUNDLE.tokenizer, directory)
    with open(os.path.join(directory, 'config.json'), 'w') as file:
      json.dump(sizes, file)
    return directory

  def test_another_checkpoint_has_no_reference(self):
    model = self._model()
    config = self._config(checkpoint=model)
    self.assertNotIn('reference', config.task.inputs)
    self.assertEqual(config.system.checkpoint, model)
    self.assertNotIn('reference', self._config(reference_path='').task.inputs)

  def test_another_checkpoint_brings_its_own_tokenizer(self):
    model = self._model(n_positions=2048)
    beside = os.path.join(model, 'tokenizer.json')
    for changes, longest in (
      # The params of the bundled model take 512 tokens. Other params set the
      # limit themselves.
      ({}, 512),
      (
        {'params': f'{_PARAMS}.GPTJ4TokenizedINT8BS32XLAWait40MB6Offline'},
        1919,
      ),
      ({'params': 'a.server.knows.Them'}, 1919),
      ({'system': 'engine', 'override': ['INPUT_SEQ_LEN=64']}, 64),
      ({'system': 'reference'}, 1919),
      ({'system': 'reference', 'max_input_length': 7}, 7),
    ):
      config = self._config(checkpoint=model, **changes)
      self.assertEqual(config.task.inputs['tokenizer'], beside, changes)
      self.assertEqual(config.task.samples.max_input_length, longest, changes)
    # The tokenizer of a PAX checkpoint is beside the directory of a step.
    step = os.path.join(model, 'checkpoint_00000000')
    os.mkdir(step)
    config = self._config(checkpoint=step)
    self.assertEqual(config.task.inputs['tokenizer'], beside)
    short = self._model(n_positions=640)
    config = self._config(checkpoint=short, system='reference')
    self.assertEqual(config.task.samples.max_input_length, 512)

  def test_the_bundled_tokenizer_is_for_the_bundled_model_alone(self):
    nothing = self.create_tempdir().full_path
    for changes in (
      {'checkpoint': nothing},
      {'checkpoint': nothing, 'system': 'reference'},
      {'checkpoint': 'gs://bucket/gpt-j'},
      {'system': 'network', 'sut_server': ['h:1']},
    ):
      with self.assertRaisesRegex(
        ValueError, 'json is .*. Pass --tokenizer_path'
      ):
        self._config(**changes)
    for model in ('bert-99', 'bert-99.9'):
      with self.assertRaisesRegex(ValueError, r'vocab\.txt .*--tokenizer_path'):
        self._config(model=model, checkpoint=nothing)

  def test_a_running_cell_tells_its_tokenizer(self):
    cell = fake_cell.FakeCell(self.create_tempdir().full_path)
    self.addCleanup(cell.stop)
    model = cell.admin.models[fake_cell.MODEL].model
    model.checkpoint_path = self._model()
    model.model_path = f'{_PARAMS}.GPTJ4TokenizedINT8BS32XLAWait40MB6Offline'
    running = {'model_path': fake_cell.MODEL, 'sax_root': cell.root}
    config = self._config(**running)
    self.assertStartsWith(
      config.task.inputs['tokenizer'], model.checkpoint_path
    )
    self.assertEqual(config.task.samples.max_input_length, 1919)
    model.checkpoint_path = 'gs://bucket/gpt-j'
    with self.assertRaisesRegex(ValueError, 'bucket/gpt-j.*--tokenizer_path'):
      self._config(**running)

  def test_a_running_cell_is_a_target(self):
    config = self._config(
      model_path='/sax/test/m',
      sax_root='/root',
      tokenizer_path=gptj.BUNDLE.tokenizer,
      max_input_length=512,
    )
    self.assertEqual(
      config.system.parameters,
      {'model_id': '/sax/test/m', 'sax_root': '/root', 'stream': False},
    )
    self.assertNotIn('reference', config.task.inputs)
    # The servers of a running cell are not watched. Only a short silence
    # reveals their failure.
    self.assertEqual(config.load.silence_secs, 25.0)
    self.assertEqual(self._config().load.silence_secs, 120.0)

  def test_a_cell_of_several_hosts(self):
    self.assertNotIn('hosts', self._config(hosts=1).system.parameters)
    system = self._config(hosts=2).system
    self.assertEqual(system.hosts, 2)
    self.assertEqual(system.parameters['hosts'], 2)
    # The requests are split among the devices of all hosts.
    self.assertEqual(set(system.overrides), {'ICI_MESH_SHAPE'})

  def test_id_depends_on_all_that_decides_the_result(self):
    known = self._config().id
    self.assertEqual(self._config(silence_secs=3.0).id, known)
    self.assertEqual(self._config(jax_cache_dir='').id, known)
    for change in (
      {'target_qps': 5.0},
      {'sample_count': 5},
      {'override': ['BATCH_SIZE=2']},
      {'hosts': 2},
      {'mode': ['performance']},
      {'round': 'v4.0'},
      {'scenario': rounds.SERVER},
      {'model': 'gptj-99.9'},
      {'execution_mode': load.TEST},
    ):
      self.assertNotEqual(self._config(**change).id, known, change)

  def test_targets_are_of_the_system_and_its_samples(self):
    known = self._config(rounds.SERVER).targets_key
    for change in (
      {'target_qps': 5.0},
      {'min_duration': 5},
      {'round': 'v4.0'},
      {'mode': ['find_performance']},
    ):
      config = self._config(rounds.SERVER, **change)
      self.assertEqual(config.targets_key, known, change)
    for change in (
      {'target_latency_ms': 5.0},
      {'override': ['BATCH_SIZE=2']},
      {'concurrency': 3},
    ):
      config = self._config(rounds.SERVER, **change)
      self.assertNotEqual(config.targets_key, known, change)
    self.assertNotEqual(self._config().targets_key, known)

  def test_valid_runs_of_a_served_model_warm_up_as_the_published_ones(self):
    valid = {'execution_mode': load.VALID}
    for changes, bursts, rest_secs in (
      (valid, '1,2,4,8,16,32,36', 30.0),
      (valid | {'system': 'engine'}, '1,2,4,8,16,32,36', 30.0),
      (valid | {'warm_up_rest_secs': 2.0}, '1,2,4,8,16,32,36', 2.0),
      (valid | {'warm_up': '3'}, '3', 0.0),
      (valid | {'warm_up': ''}, '', 0.0),
      (valid | {'system': 'reference'}, '', 0.0),
      ({'execution_mode': load.FAST}, '', 0.0),
      ({}, '', 0.0),
    ):
      made = self._config(**changes).load
      self.assertEqual(
        (made.warm_up, made.warm_up_rest_secs), (bursts, rest_secs), changes
      )

  def test_requests_in_flight_fill_the_slots_twice(self):
    default = self._config().load
    for slots, expected in ((0, 200), (32, 200), (96, 200), (128, 256)):
      self.assertEqual(default.in_flight(slots), expected)
    self.assertEqual(self._config(concurrency=3).load.in_flight(128), 3)

  def test_loadgen_gets_the_requests_in_flight(self):
    cell = fake_cell.FakeCell(self.create_tempdir().full_path)
    self.addCleanup(cell.stop)
    model = cell.admin.models[fake_cell.MODEL].model
    model.model_path = f'{_PARAMS}.GPTJ4TokenizedINT8BS32XLAWait40MB6Offline'
    model.overrides['BATCH_SIZE'] = '[8, 128]'
    config = self._config(
      model_path=fake_cell.MODEL,
      sax_root=cell.root,
      tokenizer_path=gptj.BUNDLE.tokenizer,
    )
    progress = progress_lib.Progress(quiet=True)
    with session_lib.started(config.system, self._cache, progress) as session:
      run = session.specification(
        dataclasses.replace(config, results_dir=self._cache),
        'performance',
        self._cache,
        load.run_settings(config.load, gptj.GPTJ, 4, load.Speed()),
        warm_up=False,
        test=None,
      )
    self.assertEqual(run.concurrency, 256)

  def test_answers_are_held_to_the_targets_of_the_model(self):
    # Only the number of samples identifies an official set, so four samples
    # stand for it.
    for model, benchmark in benchmarks.MODELS.items():
      small = {model: dataclasses.replace(benchmark, full_set=4)}
      self.enter_context(mock.patch.dict(benchmarks.MODELS, small))
    logs = self.create_tempdir()
    for model, zeros, least in (
      ('gptj-99', 8, 'rouge1 .* at least 42.5566'),
      ('gptj-99.9', 8, 'rouge1 .* at least 42.9435'),
      ('bert-99', 4 * 384 * 2, 'F1 .* at least 89.9653'),
      ('bert-99.9', 4 * 384 * 2, 'F1 .* at least 90.7831'),
    ):
      answer = {'data': '00' * zeros}
      entries = [answer | {'seq_id': i, 'qsl_idx': i} for i in range(4)]
      logs.create_file(loadgen_log.ACCURACY_LOG, json.dumps(entries))
      task = self._config(model=model, reference_path='').task
      judged = task.judge(logs.full_path, exact=False)
      self.assertRegex(judged.problems()[0], least)

  def test_lines_of_user_conf(self):
    path = self.create_tempfile(content='*.Offline.target_qps = 3\n').full_path
    config = self._config(user_conf_override_path=path)
    self.assertEqual(
      config.load.user_conf_extra, 'gptj.Offline.target_qps = 3\n'
    )
    path = self.create_tempfile(content='*.Offline.target_qps = x\n').full_path
    with self.assertRaisesRegex(ValueError, f'{path}, line 1: .* number from'):
      self._config(user_conf_override_path=path)

  def test_wrong_values_are_reported(self):
    for values, message in (
      ({'mode': ['speed']}, '--mode=speed must be one or more of accuracy'),
      ({'checkpoint': '/no'}, '--checkpoint=/no does not exist. Pass the path'),
      ({'target_qps': 0.0}, '--target_qps=0.0 must be above 0'),
      (
        {'target_latency_ms': 99.5, 'scenario': rounds.SERVER},
        '--target_latency_ms=99.5 must be a whole number in Server',
      ),
      (
        {'override': ['BATCH_SIZE']},
        '--override=BATCH_SIZE must have the form',
      ),
      ({'dataset_path': '/nowhere'}, '/nowhere'),
      (
        {'warm_up_rest_secs': 3.0},
        '--warm_up_rest_secs=3.0 has no effect without a warm-up',
      ),
      (
        {'reference_path': '', 'rouge_tolerance': 0.1},
        '--rouge_tolerance=0.1 has no effect without recorded answers',
      ),
    ):
      with self.assertRaisesRegex((OSError, ValueError), message):
        self._config(**values)


if __name__ == '__main__':
  absltest.main()
