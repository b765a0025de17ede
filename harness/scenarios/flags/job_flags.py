"""Flags of the programs that run scenarios, and the jobs they describe."""

from collections.abc import Sequence
import os
import sys

from absl import flags

from harness.caching import cache_flag
from harness.description import description
from harness.results import store
from harness.rules import requirements
from harness.rules import rounds
from harness.scenarios import config as config_lib
from harness.scenarios import result_directories
from harness.scenarios.flags import flag_table
from harness.scenarios.flags import load_flags
from harness.scenarios.flags import system_flags
from harness.scenarios.flags import task_flags
from saxml_ext.common import user_path

# What keeps the speeds that find_performance found.
_TARGETS = 'targets.json'

MODEL = flags.DEFINE_enum(
  'model',
  'gptj-99',
  list(rounds.MODELS),
  'Benchmark and accuracy target, as they are submitted.',
)
MODE = flags.DEFINE_list(
  'mode',
  [config_lib.ACCURACY, config_lib.PERFORMANCE],
  'Runs to make: accuracy, performance, find_performance (searches the highest'
  ' valid speed and keeps it for later runs), compliance (the tests that closed'
  ' submissions of BERT need), with commas between.',
)
RESULTS_DIR = flags.DEFINE_string(
  'results_dir',
  None,
  'Where logs and the report go. Default: a directory of its own below the'
  ' results in --cache_dir.',
)
RERUN = flags.DEFINE_bool(
  'rerun',
  False,
  'Run anew, where a stored result of the same parameters would be shown.',
)
_SYSTEM_PRESET = flags.DEFINE_string(
  'system_preset',
  None,
  'Known system that this is, such as tpu_v5e_x4; `//harness:system presets`'
  ' lists them. Default: this machine, as far as it tells.',
)
_SYSTEM_DESCRIPTION = flags.DEFINE_string(
  'system_description',
  None,
  'File in YAML or JSON with what only you know of the system, by key of the'
  ' official description; `//harness:system keys` lists them.',
)
CATEGORY = flags.DEFINE_enum(
  'category',
  None,
  requirements.CATEGORIES,
  'Category of the system, which its description gets as system_type.',
)
DIVISION = flags.DEFINE_enum(
  'division',
  None,
  requirements.DIVISIONS,
  'Division of the result, which the description of its system gets.',
)


def jobs(
  scenarios: Sequence[str],
) -> tuple[result_directories.Place, list[config_lib.JobConfig]]:
  """The jobs that the flags describe, one per scenario, and where they write.

  Args:
    scenarios: LoadGen's names.

  Raises:
    OSError, ValueError: a flag's value cannot be used.
  """
  unknown = set(MODE.value) - set(config_lib.MODES)
  if unknown or not MODE.value:
    raise ValueError(
      f'--mode={",".join(MODE.value)}: choose one or more of'
      f' {", ".join(config_lib.MODES)}, with commas between'
    )
  benchmark = rounds.MODELS[MODEL.value]
  kind = system_flags.kind(benchmark)
  flag_table.check(
    flag_table.Run(kind, scenarios, MODE.value, load_flags.EXECUTION_MODE.value)
  )
  results_dir = user_path.resolve(RESULTS_DIR.value)
  cache = cache_flag.get(results_dir).create()
  system = system_flags.system(kind, cache)
  task = task_flags.task(MODEL.value, kind, system)
  described = {}
  if _SYSTEM_DESCRIPTION.value:
    described = description.read_file(
      user_path.resolve(_SYSTEM_DESCRIPTION.value)
    )
  for key, flag in (('system_type', CATEGORY), ('division', DIVISION)):
    if flag.value:
      described[key] = flag.value
  place = result_directories.Place(
    store.Store(cache.results),
    results_dir,
    len(scenarios) > 1,
  )
  configs = [
    config_lib.JobConfig(
      model=MODEL.value,
      modes=tuple(MODE.value),
      results_dir='',
      targets_path=os.path.join(cache.results, _TARGETS),
      system=system,
      task=task,
      load=load_flags.load(
        scenario,
        benchmark,
        watched=not system_flags.MODEL_PATH.value,
        serves=kind in flag_table.SERVING,
      ),
      command=tuple(sys.argv),
      system_preset=_SYSTEM_PRESET.value,
      system_description=described,
    )
    for scenario in scenarios
  ]
  round_name = configs[0].load.round
  if config_lib.COMPLIANCE in MODE.value and not requirements.compliance_tests(
    round_name, MODEL.value
  ):
    raise ValueError(
      f'--mode={config_lib.COMPLIANCE}: {MODEL.value} has no compliance tests in'
      f' {round_name}'
    )
  return place, configs
