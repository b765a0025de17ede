"""Writes the optimized HLO of the engine's programs, to compare two commits.

  bazel run //tests/aot:program_texts -- --out=/tmp/after

The programs are those of a GPT-J and of an LmCloudSpmd, each for this CPU. With
--tpu, they are also compiled for v5e 2x2, which needs libtpu but no TPU. The
texts omit metadata and the names of instructions and arguments, because these
depend on the names of functions, arguments and files. If two commits compile
the same programs, `diff -r /tmp/before /tmp/after` prints nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
import os
import re

from absl import app
from absl import flags
import jax

from saxml_ext.aot import abstract_model
from saxml_ext.aot.tpu import topologies
from saxml_ext.common import program
from saxml_ext.common import user_path
from saxml_ext.engine import abstract_weights
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import executables
from saxml_ext.engine import state
from saxml_ext.engine.testing import random_model
from saxml_ext.params import gptj  # noqa: F401 Registers or sets up.
from saxml_ext.params import lm_cloud  # noqa: F401 Registers or sets up.

_OUT = flags.DEFINE_string('out', None, 'The directory for the texts.')
_TPU = flags.DEFINE_bool(
  'tpu', False, 'Compile for v5e 2x2 instead of this CPU.'
)

_SIZES = dict(
  num_layers=2,
  model_dim=256,
  num_heads=4,
  head_dim=64,
  hidden_dim=512,
  vocab_size=1000,
)
_MODELS: Mapping[str, config_lib.ModelConfig] = {
  'gptj': config_lib.ModelConfig(**_SIZES, rotary_dim=32),
  'lm_cloud': random_model.lm_cloud(**_SIZES),
}
_ENGINE = config_lib.EngineConfig(
  eos_id=0,
  num_slots=8,
  max_prompt=128,
  prompt_buckets=(64, 128),
  max_new_tokens=32,
  num_beams=4,
)
# Maps serving params to the attributes for a depth of two layers.
_PUBLISHED = {
  'gptj': ('saxml_ext.params.gptj.GPTJTokenizedINT8V5E2x2', {}),
  'lm_cloud': (
    'saxml.server.pax.lm.params.lm_cloud.LmCloudSpmd2BTest',
    {'ICI_MESH_SHAPE': '[1, 1, 4]'},
  ),
}
_METADATA = re.compile(r', (?:metadata|frontend_attributes)=\{[^}]*\}')
# The tables before the first computation: names of files and functions, and
# lines.
_TABLES = re.compile(
  r'^(?:FileNames|FunctionNames|FileLocations|StackFrames)\n(?:\d.*\n)*',
  re.MULTILINE,
)
_NAME = re.compile(r'%[\w.-]+')
# The program's line with all arguments, and the name of each.
_ENTRY = re.compile(r'^ENTRY .*$', re.MULTILINE)
_ARGUMENT = re.compile(r'(?<=[( ])[\w.]+: ')


def _on_cpu() -> Iterator[tuple[str, executables.Executables]]:
  for name, model in _MODELS.items():
    for numbers in (None, 'int8'):
      for dtype in ('float32', 'bfloat16'):
        weights = abstract_weights.shapes(model, dtype, numbers, False)
        run = executables.Executables(
          state.Settings(model, _ENGINE), weights, None
        )
        yield f'cpu_{name}_{dtype}_{numbers or "float"}', run


def _on_tpu() -> Iterator[tuple[str, executables.Executables]]:
  devices: Sequence[jax.Device] = topologies.find('v5e_2x2').describe()
  for name, (params, overrides) in _PUBLISHED.items():
    made = abstract_model.from_params(
      params, {'NUM_LAYERS': '2', **overrides}, devices
    )
    yield f'v5e_2x2_{name}', made.executables()


def _normal(text: str) -> str:
  """Returns HLO without metadata, with names that are numbered in order."""
  names: dict[str, str] = {}

  def number(match: re.Match[str]) -> str:
    return names.setdefault(match[0], f'%{len(names)}')

  text = _ENTRY.sub(lambda match: _ARGUMENT.sub('', match[0]), text)
  return _NAME.sub(number, _METADATA.sub('', _TABLES.sub('', text)))


def main(argv: Sequence[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments {argv[1:]}')
  topologies.prepare()  # This removes source locations from the texts.
  out = user_path.resolve(_OUT.value)
  os.makedirs(out, exist_ok=True)
  for name, run in _on_tpu() if _TPU.value else _on_cpu():
    for key in run.keys():
      if not str(key).startswith(('decode', 'prefill')):
        continue
      text = _normal(run.lower(key).compile().as_text())
      path = os.path.join(out, f'{name}_{key}.txt'.replace(' ', '_'))
      with open(path, 'w', encoding='utf-8') as file:
        file.write(text)
      print(path, flush=True)


if __name__ == '__main__':
  flags.mark_flag_as_required('out')
  program.run(main)
