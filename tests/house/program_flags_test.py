"""Tests the effect of each flag of each program, from a table.

A flag always has an effect, or it has a rule (`flag_rules`) and is refused if
it has no effect. harness/scenarios/flag_table.py has the table for the
scenarios' programs.
"""

from concurrent import futures
import importlib
import multiprocessing
import os
import re
from typing import NamedTuple

from absl import flags
from absl.testing import absltest
from absl.testing import flagsaver
from absl.testing import parameterized
import grpc  # noqa: F401 Programs import it.
import jax  # noqa: F401 Programs import it.

from saxml_ext.client import saxutil
from saxml_ext.client.cli import command
from saxml_ext.common import flag_rules
from tests.house import targets
from tests.house import tree


class _Program(NamedTuple):
  """The expected effects of the flags of a program.

  Attributes:
    always: The names of the flags without a rule. Each flag always has an
      effect, or the program's own checks refuse it.
    refused: The sets of flags with values, separated by semicolons. The last
      flag of each set has no effect.
    acting: The sets of flags with values. All of them have an effect.
  """

  always: str
  refused: str = ''
  acting: str = ''


_CELL = 'sax_root sax_cell'
_LOGS = 'log_format log_requests otlp_endpoint'
_TLS = 'tls_cert_file tls_key_file tls_ca_file tls_server_name'
_NO_TLS = 'tls_require_client_certs=true'
_WITH_TLS = f'tls_ca_file=c {_NO_TLS}'
# These are the flags of saxml_ext/http/gateway_flags.py.
_LIMITS = (
  'api_keys_file max_body_bytes max_in_flight request_timeout queue_secs'
  ' allowed_origins allowed_hosts max_connections_per_client strict_requests'
  ' max_bytes_in_flight max_connections'
)
_CONVERT = _Program(
  'base base-model-path pax pax-model-path lora overwrite resume quantize'
  ' compress',
  'quantize=int8 dtype=bfloat16; quantize=int8 verify=true',
  'dtype=bfloat16 verify=true',
)
_RANDOM = _Program(
  'family like dtype out format shards seed',
  'like=a layers=2; like=a dim=8; like=a heads=2; like=a rotary_dim=2;'
  'like=a kv_heads=2; like=a hidden=8; like=a vocab=9',
  'layers=2 dim=8 heads=2 rotary_dim=2 kv_heads=2 hidden=8 vocab=9',
)
_BENCH = _Program(
  'tool layers dim heads vocab dtype dir kills seed flag',
  'tool=quantize shards=2; tool=quantize format=bin;'
  'tool=quantize source_dtype=float32',
  'shards=2 format=bin source_dtype=float32',
)
_GROUP = 'num_processes=2 process_id=0 coordinator_address=h:1'
_SERVER = _Program(
  'sax_cell port host acl_file models model_keys checkpoints jax_cache_dir'
  ' memory_fraction drain_secs http_port programs load_roots deterministic_rng'
  ' early_reject_on_dormant jax_profiler_port group coordinator_address'
  f' num_processes process_id host_ordinal {_LOGS} {_TLS}',
  'sax_root=r; platform_chip=cpu; platform_topology=1; tags=a; admin_port=0;'
  'model_filter_regex=a; keep_statically_loaded_models=true;'
  'sax_cell=/sax/a models=m keep_statically_loaded_models=true'
  ' model_filter_regex=a; model_config_overrides={}; programs_mismatch=refuse;'
  f'{_GROUP} programs_cache=c; http_host=h; profile_dir=d; group_port=1;'
  f'group_silence_secs=1; group_step_secs=1; {_GROUP} num_processes=1'
  f' group_load_secs=1; trusted_proxies=a; {_NO_TLS}',
  'sax_cell=/sax/a sax_root=r platform_chip=cpu platform_topology=1 tags=a'
  ' admin_port=0 model_filter_regex=a programs=p programs_mismatch=refuse'
  ' programs_cache=c http_port=0 http_host=h profile_dir=d;'
  'models=m keep_statically_loaded_models=true model_config_overrides={};'
  f'{_GROUP} group_port=1 group_silence_secs=1 group_step_secs=1'
  f' group_load_secs=1; {_GROUP} num_processes=1 group=flags group_port=1;'
  f'{_WITH_TLS} trusted_proxies=a;'
  'tags= http_host= profile_dir=',  # Empty values have no effect.
)

_PROGRAMS = {
  '//saxml_ext/server:server': _SERVER,
  '//saxml_ext/server:pax_server': _SERVER._replace(
    always=f'{_SERVER.always} pax_experiments'
  ),
  '//benchmarks/parts:load_memory': _Program('params checkpoint'),
  '//saxml_ext/server/commands:compile_programs': _Program(
    'params checkpoint override out stablehlo'
  ),
  '//benchmarks/parts:first_token': _Program(
    'params checkpoint programs prompt'
  ),
  '//saxml_ext/admin:admin_config': _Program(f'{_CELL} fs_root admin_acl'),
  '//saxml_ext/admin:admin_server': _Program(
    f'{_CELL} port host http_port acl_file sax_admin_exp_assigner {_LOGS}'
    f' {_TLS}',
    f'http_port=-1 http_host=h; trusted_proxies=a; {_NO_TLS}',
    f'http_host=h; {_WITH_TLS} trusted_proxies=a',
  ),
  '//saxml_ext/http:gateway': _Program(
    f'{_CELL} port host drain_secs default_model served_model_name'
    f' chat_template generation_config status_page {_LIMITS} {_LOGS} {_TLS}',
    _NO_TLS,
    _WITH_TLS,
  ),
  '//benchmarks/parts:gateway': _Program('requests tokens'),
  '//saxml_ext/common/security:api_key': _Program(
    'api_keys_file name list revoke'
  ),
  '//saxml_ext/common/security/certs:make_certs': _Program(
    'dir name days renew', 'dir=$DIR ca_days=9', 'dir=/none ca_days=9'
  ),
  '//benchmarks:long_prompts': _Program(
    'chunk interval kv layers prompt quantization seconds slots vocab'
  ),
  '//benchmarks:gpu': _Program('articles cases deadline out require tiny'),
  '//benchmarks/gpu_cases:gpu_estimate': _Program('cases'),
  '//benchmarks:one_chat': _Program('llama_cpp quantize rounds tokens'),
  '//benchmarks:bench': _Program(
    'engines family model threads avx2 rounds out cache json agreement plot',
    'model=bundled layers=2; model=bundled dim=2; model=bundled heads=2;'
    'model=bundled rotary=2; model=bundled vocab=16;'
    'model=bundled set=ragged prompt=9; requests=9; set=ragged batch=9;'
    'set=ragged new_tokens=9; modes=greedy beams=8;'
    'engines=ct2,openvino_int8 slots=8; engines=ct2 trace=true;'
    'family=llama dim=2; family=llama heads=2; family=llama rotary=2;'
    'family=llama modes=greedy; family=llama set=fixed; family=llama beams=8;'
    'llama_cpp=a; family=llama engines=ct2 llama_cpp=a',
    'layers=2 dim=2 heads=2 rotary=2 vocab=16 prompt=9 batch=9 new_tokens=9'
    ' beams=8 slots=8 trace=true; model=bundled prompt=9;'
    'set=ragged requests=9 prompt=9 modes=greedy,beam beams=8'
    ' engines=ours_int8 slots=8; family=llama model=8b layers=2 vocab=16 prompt=9'
    ' new_tokens=9 batch=1,9 slots=8 trace=true llama_cpp=a',
  ),
  **dict.fromkeys(
    (
      '//saxml_ext/aot/tpu:compile_gpu_programs',
      '//saxml_ext/aot/tpu:compile_programs',
    ),
    _Program(
      'params override topology out only jobs',
      'topology=h100 xla_flags=params',
      'topology=v5e_2x2 xla_flags=params',
    ),
  ),
  '//benchmarks/tpu_estimate:report': _Program(
    'costs programs lengths buckets samples server page',
    'server=false stream_interval=2',
    'stream_interval=2',
  ),
  '//benchmarks/tpu_estimate:count_lengths': _Program('dataset tokenizer out'),
  '//benchmarks/tpu_estimate/compiled:count_bundles': _Program('out topology'),
  '//benchmarks/tpu_estimate/compiled:compile_costs': _Program(
    'out again',
    'again=true title=a; again=true topology=a; again=true mesh=1;'
    'again=true buckets=1; again=true rows=1; again=true weights=int8;'
    'again=true kv=int8; again=true slots=1; again=true layers=1;'
    'again=true static=true; again=true params=a; params=a mesh=1;'
    'params=a buckets=1; params=a rows=1; params=a weights=int8;'
    'params=a kv=int8; params=a slots=1; params=a layers=1;'
    'params=a static=true',
    'title=a topology=a mesh=1 buckets=1 rows=1 weights=int8 kv=int8 slots=1'
    ' layers=1 static=true; title=a topology=a params=a',
  ),
  '//converters:convert_gptj_ckpt': _CONVERT,
  '//converters:convert_hf': _CONVERT,
  '//converters:convert_llama_ckpt': _CONVERT._replace(
    always=f'{_CONVERT.always} model_size'
  ),
  '//converters:offline_quantize': _Program(
    'input_dir output_dir quantization_configs number_bits quantize_softmax'
    ' clipping per_channel_clipping_optimization smoothing calibration report'
    ' overwrite resume',
    'calibration_count=9; gptq_max_inputs=9; article_count=9;'
    'report=false articles=a',
    'calibration=a calibration_count=9 gptq_max_inputs=9 articles=a'
    ' article_count=9',
  ),
  '//converters:verify_ckpt': _Program(
    'base source pax',
    'text=a; articles=a; logit_tolerance=1; logits=true articles=a text=b;'
    'lora=a; base=a lora=a logits=true',
    'logits=true text=a logit_tolerance=1; logits=true articles=a;'
    'base=a lora=a',
  ),
  '//converters:random_gptj': _RANDOM,
  '//converters:random_hf': _RANDOM,
  '//benchmarks/parts:convert': _BENCH,
  '//benchmarks/parts:quantize': _BENCH,
  '//serve:main': _Program(
    'port host api_key_file served_model_name chat_template params cache_dir'
    f' sax_root drain_secs memory_fraction {_LIMITS}',
    'params=a max_model_len=9; params=a quantize=int8; insecure=true;'
    'host=0.0.0.0 api_keys_file=a insecure=true',
    'max_model_len=9 quantize=int8 host=0.0.0.0 insecure=true',
  ),
  '//serve:ask': _Program('port model max_tokens temperature'),
  '//harness:cache': _Program(
    'cache_dir',
    'path kind=jax; path older_than=1d; show yes=true',
    'kind=jax older_than=1d; rm kind=jax yes=true',
  ),
  '//harness/bert:bert_accuracy': _Program(
    'vocab_file val_data log_file out_file output output_dtype'
    ' output_transposed max_examples'
  ),
  '//harness/bert:export': _Program(
    'model random_large precision output',
    'float32_layers=a; seed=1',
    'precision=int8 float32_layers=a random_large=true seed=1',
  ),
  '//harness/data:download': _Program('benchmark cache_dir verify'),
  '//harness/data:prepare_cnn_dailymail': _Program(
    'input calibration_list output_dir tokenizer_path cache_dir'
  ),
  '//harness/data:prepare_squad': _Program('dev vocab cache_dir'),
  '//harness/description:system': _Program(
    '',
    'cuda sw_notes=a; keys preset=a; keys system_description=a; keys set=a=b;'
    'presets out=a;keys submitter=a; keys division=open; keys status=available;'
    'keys system_name=a; keys system_type=edge; keys hw_notes=a',
    'preset=a system_description=a set=a=b submitter=a division=open out=a'
    ' status=available system_name=a system_type=edge hw_notes=a sw_notes=a;'
    'cuda out=a',
  ),
  '//harness/models:pax_model': _Program(
    'base dtype quantize cache_dir',
    'calibration=a',
    'quantize=true calibration=a',
  ),
  '//harness/pages/cli:compose': _Program('output'),
  '//harness/pages/cli:report': _Program(
    'result results_dir official output price_per_hour cache_dir'
  ),
  '//harness/results/cli:results': _Program(
    'cache_dir',
    'show benchmark=gptj; show model=a; rm scenario=Server; compare round=v4.0;'
    'show system=a; show valid=true; show unfinished=true; list yes=true',
    'benchmark=gptj model=a scenario=Server round=v4.0 system=a valid=true;'
    'list unfinished=true; rm yes=true',
  ),
  '//harness/scores:accuracy': _Program(
    'accuracy_log dataset tokenizer_path dtype output nltk_data'
  ),
  '//harness/scores:evaluation': _Program(
    'mlperf_accuracy_file dataset_file checkpoint_path model_name_or_path'
    ' model_name dtype nltk_data verbose cache_dir'
  ),
  '//harness/submission:submission': _Program(
    'check result round submitter run_checker',
    'check=a endpoints_report=a; check=a output=a; check=a division=open; check=a category=edge;'
    'check=a system_name=a; check=a system_description=a; check=a clean=true;'
    'check=a hw_notes_extra=a; check=a sw_notes_extra=a; check=a model_name=a;'
    'check=a measurements=a; check=a calibration=a; check=a git_branch=a;'
    'check=a tar=a; repo=a; commit_message=a; system_diagram=a;'
    'checker_python=a; checker_revision=a; check=a inference_dir=a;'
    'results_dir=a; cache_dir=a',
    'endpoints_report=a output=a division=network category=edge system_name=a'
    ' hw_notes_extra=a'
    ' system_description=a sw_notes_extra=a model_name=a measurements=a'
    ' calibration=a clean=true tar=a git_branch=a repo=a commit_message=a'
    ' system_diagram=a inference_dir=a;'
    'check=a run_checker=true inference_dir=a checker_python=a'
    ' checker_revision=a; result=a results_dir=a cache_dir=a',
  ),
}
# These flags belong to saxutil and its commands. saxutil's tests show that
# flags without effect are refused.
_LM = 'extra proxy'
_SAXUTIL = {
  'saxutil': f'sax_root sax_timeout {_TLS} logtostderr alsologtostderr v'
  ' log_format version',
  **dict.fromkeys(('lm.embed', 'lm.gradient', 'lm.score'), _LM),
  **dict.fromkeys(
    'am.recognize vm.classify vm.detect vm.embed vm.generate'.split(), 'extra'
  ),
  'lm.generate': f'{_LM} stream terse n',
  'export': 'rng_seed_mode signatures enable_gpu_multi_device_execution',
  'ls': 'csv details acls status',
  'stats': 'csv',
  'update': 'replicas',
}
_ROOMS = ('benchmarks', 'converters', 'harness', 'saxml_ext', 'serve')
# These programs have no rules: other programs start them, or they generate
# bundled files.
_INTERNAL = re.compile('testing|bundled|harness/(loadgen|network|systems)')
# These are flags of the scenarios' programs, and of programs that call LoadGen.
_SCENARIO_FLAGS = {'execution_mode', 'loadgen_attributes'}


def _refused(module: str, lines: list[list[str]]) -> list[list[str]]:
  """Returns the flags that a program refuses, for each line of flags."""
  for name in [name for name in os.environ if name.startswith('SAX_')]:
    del os.environ[name]
  importlib.import_module(module)
  refused = []
  for line in lines:
    given: dict[str, str | list[str]] = {}
    for name, value in (w.split('=', 1) for w in line if '=' in w):
      is_multi = isinstance(flags.FLAGS[name], flags.MultiFlag)
      given[name] = [value] if is_multi else value
    words = [word for word in line if '=' not in word]
    with flagsaver.as_parsed(**given):
      problems = flag_rules.problems(words)
      refused.append([re.match(r'--(\w+)', text)[1] for text in problems])
  return refused


def _programs() -> dict[str, set[str]]:
  """Returns the flags of each program in the rooms, by the program's label."""
  labels = {
    label: targets.flags(target)
    for label, target in targets.targets().items()
    if target.kind == 'py_binary'
    and target.package.split('/')[0] in _ROOMS
    and not _INTERNAL.search(target.package)
  }
  return {
    # Programs that also accept dashes have both spellings.
    label: {n for n in names if n.replace('-', '_') not in names - {n}}
    for label, names in labels.items()
    if names and not names & _SCENARIO_FLAGS
  }


def _sets(text: str) -> list[list[str]]:
  return [part.split() for part in text.split(';') if part.strip()]


def _name(word: str) -> str:
  return word.split('=')[0]


class ProgramFlagsTest(parameterized.TestCase):
  def test_every_flag_has_a_decision(self):
    programs = _programs()
    self.assertCountEqual(programs, _PROGRAMS)
    for label, program in _PROGRAMS.items():
      with self.subTest(label):
        always = set(program.always.split())
        ruled = {_name(words[-1]) for words in _sets(program.refused)}
        self.assertEmpty(always & ruled)
        self.assertEqual(programs[label], always | ruled)
        acting = {_name(w) for words in _sets(program.acting) for w in words}
        self.assertContainsSubset(ruled, acting)

  @parameterized.parameters(
    *(label for label, program in _PROGRAMS.items() if program.refused)
  )
  def test_flags_without_effect_are_refused(self, label):
    program = _PROGRAMS[label]
    directory = self.create_tempdir()
    directory.create_file('ca.pem')
    refused = _sets(program.refused.replace('$DIR', directory.full_path))
    acting = _sets(program.acting)
    main = targets.targets()[label].attributes
    module = f'{label[2:].split(":")[0]}/{main["srcs"][0]}'
    module = module.removesuffix('.py').replace('/', '.')
    # Each program needs a process, because they share names of flags. A forked
    # process has the slow imports already.
    with futures.ProcessPoolExecutor(
      1, multiprocessing.get_context('fork')
    ) as pool:
      results = pool.submit(_refused, module, refused + acting).result()
    expected = [[_name(words[-1])] for words in refused] + [[] for _ in acting]
    for words, problems, want in zip(refused + acting, results, expected):
      self.assertEqual(problems, want, words)

  def test_every_flag_of_saxutil_has_a_decision(self):
    commands = {name: command.get(name).flags for name in command.names()}
    for name, known in (commands | {'saxutil': saxutil.FLAGS}).items():
      self.assertSameElements(
        [flag.name for flag in known], _SAXUTIL.get(name, '').split(), name
      )

  def test_the_page_names_all_flags_of_the_model_server(self):
    page = (tree.ROOT / 'docs/cell.md').read_text('utf-8')
    section = page.split('\n## Flags of the model server\n')[1]
    named = set(re.findall(r'--(\w+)', section.split('\n## ')[0]))
    self.assertContainsSubset(_programs()['//saxml_ext/server:server'], named)


if __name__ == '__main__':
  absltest.main()
