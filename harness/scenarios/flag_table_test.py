import functools
import os
from typing import Any
from unittest import mock

from absl import flags
from absl.testing import absltest
from absl.testing import flagsaver
from absl.testing import parameterized

from harness.benchmarks import bert
from harness.benchmarks import gptj
from harness.data.testing import punkt
from harness.loadgen import run as run_lib
from harness.rules import rounds
from harness.scenarios import flag_table
from harness.scenarios import job as job_lib
from harness.scenarios import load as load_lib
from saxml_ext.common import errors
from saxml_ext.common import flag_rules
from saxml_ext.common.security import tls_flags

# Flags that act on the program, not on the job. The tests of the program cover
# them.
_PROGRAM = ('scenario', 'results_dir', 'cache_dir', 'rerun')
# Flags that act in every run, so the table does not have them.
_ALWAYS = (
  *(*_PROGRAM, 'model', 'mode', 'round', 'execution_mode', 'system'),
  *('system_preset', 'system_description', 'category', 'division'),
  *('user_conf_override_path', 'silence_secs', 'warm_up', 'warm_up_rest_secs'),
  *('buffer_count', 'dataset_path', 'tokenizer_path', 'sample_count'),
)

_SAMPLE = {'sample_count': 2}
_PROMPTS = {'tokenizer_path': gptj.BUNDLE.tokenizer, 'max_input_length': 512}
# The flags of a run on each system.
_RUNS: dict[str, dict[str, Any]] = {
  flag_table.OWN_CELL: {},
  flag_table.RUNNING_CELL: {
    'model_path': '/sax/test/m',
    'sax_root': '/root',
    **_PROMPTS,
  },
  flag_table.ENGINE: {'system': 'engine'},
  flag_table.REFERENCE: {'system': 'reference'},
  flag_table.NETWORK: {
    'system': 'network',
    'sut_server': ['h:1'],
    **_PROMPTS,
  },
  'onnxruntime': {'model': 'bert-99'},
  'pytorch': {'model': 'bert-99', 'system': 'pytorch'},
}


class FlagTableTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self._dir = self.create_tempdir().full_path
    self.enter_context(mock.patch.dict(os.environ))
    os.environ.pop('GPTJ_BEAM_SIZE', None)

  @functools.cached_property
  def _punkt(self) -> str:
    return punkt.train(os.path.join(self._dir, 'nltk'), 5)

  def _file(self, name: str, text: str) -> str:
    path = os.path.join(self._dir, name)
    with open(path, 'w', encoding='utf-8') as file:
      file.write(text)
    return path

  def _link(self, path: str) -> str:
    """Returns another path of a file."""
    other = os.path.join(self._dir, os.path.basename(path))
    if not os.path.lexists(other):
      os.symlink(path, other)
    return other

  def _changes(self, system: str) -> dict[str, object]:
    """Returns a new value for every flag, different from that in _RUNS."""
    of_bert = system in flag_table.BERT_SYSTEMS
    vocabulary, questions, model = (
      (
        bert.BUNDLE.vocabulary,
        bert.BUNDLE.dataset,
        bert.BUNDLE.model,
      )
      if of_bert
      else (gptj.BUNDLE.tokenizer, gptj.BUNDLE.dataset, gptj.BUNDLE.model)
    )
    return {
      'model': 'bert-99.9' if of_bert else 'gptj-99.9',
      'mode': ['accuracy'],
      'round': 'v4.0',
      'execution_mode': 'valid',
      'system': 'pytorch'
      if system == 'onnxruntime'
      else 'onnxruntime'
      if of_bert
      else 'reference'
      if system == flag_table.ENGINE
      else 'engine',
      'system_preset': 'tpu_v5e_x4',
      'system_description': self._file('s.yaml', 'cooling: air'),
      'category': 'edge',
      'division': 'closed',
      'user_conf_override_path': self._file(
        'user.conf', '*.*.max_duration = 99'
      ),
      'silence_secs': 7.0,
      'warm_up': '3',
      'warm_up_rest_secs': 2.0,
      'buffer_count': 1,
      'dataset_path': self._link(questions),
      'tokenizer_path': self._link(vocabulary),
      'sample_count': 3,
      'model_path': '/sax/test/n',
      'sax_root': '/other',
      'network': 'lon',
      'stream': True,
      'params': 'saxml_ext.params.gptj.TinyTokenizedINT8',
      'override': ['BATCH_SIZE=2'],
      'checkpoint': self._link(model),
      'jax_cache_dir': self._dir,
      'hosts': 2,
      'sut_server': ['h:2'],
      'connections': 2,
      'device': 'cuda',
      'precision': 'float16',
      'beam_size': 2,
      'batch_size': 2,
      'threads': 1,
      'min_duration': 1,
      'target_qps': 3.0,
      'target_latency_ms': 3.0,
      'test_query_count': 1,
      'equal_issue': of_bert,
      'concurrency': 3,
      'max_input_length': 9,
      'reference_path': ''
      if system not in (flag_table.RUNNING_CELL, flag_table.NETWORK)
      else gptj.BUNDLE.reference,
      'rouge_tolerance': 0.5,
      'nltk_data': self._punkt,
      'require_identical': False,
    }

  def _result(self, scenario: str, values) -> tuple[object, ...]:
    """Returns all values that decide the behavior of a run."""
    values = {'cache_dir': self._dir, **_SAMPLE, **values}
    with flagsaver.flagsaver(**values):
      *_, [config] = job_lib.jobs([scenario])
      task, load = config.task, config.load
      settings = load_lib.run_settings(
        load,
        task.benchmark,
        task.sample_count,
        load_lib.Speed(target_qps=1.0, latency_ms=1.0),
      )
      return (
        config.model,
        config.modes,
        config.system,
        config.system_preset,
        dict(config.system_description),
        dict(task.inputs),
        dict(task.parameters),
        settings.user_conf + load.user_conf_extra,
        dict(settings.attributes),
        load.round,
        load.execution_mode,
        load.warm_up,
        load.warm_up_rest_secs,
        # LoadGen itself sends one sample at a time.
        None if scenario == rounds.SINGLE_STREAM else load.concurrency,
        load.silence_secs,
      )

  def test_overrides_that_no_params_have_are_refused(self):
    for values, message in (
      ({'override': ['BATCHSIZE=3']}, 'Did you mean BATCH_SIZE?'),
      ({'override': ['BATCHSIZE=3'], 'system': 'engine'}, 'BATCH_SIZE?'),
      ({'override': ['BATCHSIZE=3'], 'model': 'llama3.1-8b'}, 'BATCH_SIZE?'),
      ({'override': ['BATCH_SIZE=x']}, 'the value is not JSON'),
    ):
      with self.assertRaisesRegex(errors.InvalidArgument, message):
        self._result(rounds.OFFLINE, values)
    with self.assertRaisesRegex(ValueError, 'Did you mean .*TinyFP32'):
      self._result(rounds.OFFLINE, {'params': 'saxml_ext.params.gptj.TinyFP23'})

  def _check(self, scenario: str, system: str, **choice) -> None:
    """Checks that each flag is rejected or changes the run."""
    base = _RUNS[system] | choice
    known = self._result(scenario, base)
    run = flag_table.Run(
      system,
      [scenario],
      choice.get('mode', run_lib.MODE.default),
      choice.get('execution_mode'),
    )
    for name, value in self._changes(system).items():
      # Another system makes another run with other flags.
      if name in choice or (name in ('system', 'model_path') and not choice):
        continue
      acts = flag_table.ACTS.get(name, flag_table.Acts())
      problem = acts.problem(f'--{name}', run)
      with self.subTest(name):
        if problem:
          with self.assertRaises(ValueError) as raised:
            self._result(scenario, base | {name: value})
          self.assertIn(problem, str(raised.exception))
          continue
        needs = {'warm_up': '1'} if name == 'warm_up_rest_secs' else {}
        if name in ('rouge_tolerance', 'require_identical'):
          needs['reference_path'] = gptj.BUNDLE.reference
        before = self._result(scenario, base | needs) if needs else known
        self.assertNotEqual(
          self._result(scenario, base | needs | {name: value}), before
        )

  @parameterized.parameters(*flag_table.SYSTEMS)
  def test_every_flag_acts_or_is_refused_on(self, system):
    self._check(rounds.OFFLINE, system)

  @parameterized.parameters(*gptj.GPTJ.scenarios)
  def test_every_flag_acts_or_is_refused_in(self, scenario):
    self._check(scenario, flag_table.OWN_CELL)

  @parameterized.parameters(
    {'mode': ['accuracy']},
    {'mode': ['performance']},
    {'mode': ['find_performance']},
    *({'execution_mode': mode} for mode in load_lib.EXECUTION_MODES),
  )
  def test_every_flag_acts_or_is_refused_with(self, **choice):
    self._check(rounds.OFFLINE, flag_table.ENGINE, **choice)

  @parameterized.parameters(rounds.SERVER, rounds.SINGLE_STREAM)
  def test_a_search_refuses_the_value_that_it_searches_for(self, scenario):
    # The bound on the latency of Server acts in a search.
    choice = {'mode': ['find_performance', 'performance']}
    self._check(scenario, flag_table.ENGINE, **choice)
    run = flag_table.Run(flag_table.ENGINE, [scenario], choice['mode'])
    refused = {
      name
      for name, acts in flag_table.ACTS.items()
      if 'which searches' in (acts.problem(name, run) or '')
    }
    streams = rounds.SCENARIOS[scenario].streams
    self.assertEqual(
      refused, {'target_latency_ms' if streams else 'target_qps'}
    )

  def test_compliance_runs_take_the_flags_of_timed_runs(self):
    self._check(rounds.OFFLINE, 'onnxruntime', mode=['compliance'])

  def test_the_table_has_every_flag(self):
    defined = {
      flag.name
      for module, definitions in flags.FLAGS.flags_by_module_dict().items()
      if module.startswith('harness.')
      for flag in definitions
    }
    known = [*_ALWAYS, *flag_table.ACTS]
    self.assertCountEqual(defined | {'scenario'}, known)
    self.assertCountEqual(
      self._changes(flag_table.ENGINE), set(known) - set(_PROGRAM)
    )
    # The flags of TLS act in every program and on all programs that it starts.
    self.assertIn(tls_flags.__name__, flags.FLAGS.flags_by_module_dict())

  def test_the_message_names_flag_system_and_remedy(self):
    with self.assertRaisesRegex(
      ValueError,
      '--beam_size has no effect with a cell that is started here'
      r'.*It has an effect with --system=reference.*--override=BEAM_SIZE',
    ):
      self._result(rounds.OFFLINE, {'beam_size': 1})
    with self.assertRaisesRegex(ValueError, r'--device .*\. --precision '):
      self._result(rounds.OFFLINE, {'device': 'cuda', 'precision': 'fp16'})
    with self.assertRaisesRegex(
      ValueError, '--target_qps has no effect with --scenario=SingleStream'
    ):
      self._result(rounds.SINGLE_STREAM, {'target_qps': 1.0})

  def test_a_flag_of_one_scenario_may_stand_beside_others(self):
    with flagsaver.flagsaver(cache_dir=self._dir, target_qps=3.0, **_SAMPLE):
      *_, configs = job_lib.jobs([rounds.SERVER, rounds.SINGLE_STREAM])
    self.assertLen(configs, 2)

  def test_environment_variables(self):
    os.environ['GPTJ_BEAM_SIZE'] = '1'
    for system, base in _RUNS.items():
      if system in flag_table.VARIABLES['GPTJ_BEAM_SIZE'].systems:
        self._result(rounds.OFFLINE, base)
        continue
      with self.assertRaisesRegex(
        ValueError, 'variable GPTJ_BEAM_SIZE=1 has no effect'
      ):
        self._result(rounds.OFFLINE, base)

  def test_words_of_a_command_line_are_seen(self):
    parsed = flags.FlagValues()
    flags.DEFINE_string('device', 'cpu', '', flag_values=parsed)
    parsed(['program'])
    self.assertEmpty(flag_rules.given(flag_table.ACTS, parsed))
    parsed(['program', '--device=cpu'])
    self.assertEqual(flag_rules.given(flag_table.ACTS, parsed), ['device'])


if __name__ == '__main__':
  absltest.main()
