"""Compiles programs of Llama 8B and GPT-J 6B for an H100, without a GPU.

The test counts the kernels of a program. It runs nothing, so it shows neither
speed nor correct results. It requires JAX's plugin for CUDA 13.
"""

import os

os.environ['JAX_PLATFORMS'] = 'cpu'
# .bazelrc turns optimization off, and the test counts optimized kernels.
os.environ.pop('XLA_FLAGS', None)

import collections
import dataclasses
import re

from absl import logging
from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.aot import abstract_model
from saxml_ext.aot import compile_set
from saxml_ext.aot import configuration
from saxml_ext.aot import manifest
from saxml_ext.aot.tpu import topologies
from saxml_ext.engine import abstract_weights
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import platform_configs
from saxml_ext.engine import program_keys
from saxml_ext.engine import state
from saxml_ext.families import llama

# The layers of a prefill. More of them repeat the same kernels.
_LAYERS = 2

_LLAMA = config_lib.ModelConfig(
  num_layers=32,
  model_dim=4096,
  num_heads=32,
  num_kv_heads=8,
  head_dim=128,
  hidden_dim=14336,
  rotary_dim=128,
  vocab_size=128256,
  rotary_base=500000.0,
  ln_epsilon=1e-5,
  architecture=llama.FAMILY.architecture,
)
_GPTJ = config_lib.ModelConfig(
  num_layers=28,
  model_dim=4096,
  num_heads=16,
  head_dim=256,
  hidden_dim=16384,
  rotary_dim=64,
  vocab_size=50400,
)
# The model, the quantization of its weights, and the settings of its engine.
_LLAMA_ENGINE = config_lib.EngineConfig(
  eos_id=1,
  num_slots=8,
  decode_widths=(8,),
  max_prompt=2048,
  prompt_buckets=(1024, 2048),
  prefill_batches=(1, 4),
  search='sample',
  num_beams=1,
  max_top_k=1,
  kv_dtype='bfloat16',
)
_CASES = {
  'llama': (_LLAMA, None, _LLAMA_ENGINE),
  'llama_int8': (_LLAMA, 'int8', _LLAMA_ENGINE),
  'llama_fp8': (_LLAMA, 'fp8', _LLAMA_ENGINE),
  'gptj': (
    _GPTJ,
    'int8',
    config_lib.EngineConfig(
      eos_id=50256,
      num_slots=40,
      decode_widths=(40,),
      max_prompt=1919,
      prompt_buckets=(1024, 1919),
      kv_dtype='int8',
    ),
  ),
}

# A computation, its operations, and the operations that launch nothing.
_COMPUTATION = re.compile(
  r'^(ENTRY )?%([\w.\-]+) \(.*?\{\n(.*?)^\}', re.M | re.S
)
_OPERATION = re.compile(r' = (?:\([^=]*?\)|\S+) ([\w\-]+)\(')
_FREE = {'bitcast', 'constant', 'get-tuple-element', 'parameter', 'tuple'}


def _launches(text: str) -> collections.Counter[str]:
  """Returns the operations of the program's largest sequence of kernels.

  It is the body of the loop over decode steps, or the whole prefill.
  """
  bodies = set(re.findall(r'body=%([\w.\-]+)', text))
  return max(
    (
      collections.Counter(o for o in _OPERATION.findall(body) if o not in _FREE)
      for entry, name, body in _COMPUTATION.findall(text)
      if entry or name in bodies
    ),
    key=lambda counts: counts.total(),
  )


class GpuProgramsTest(parameterized.TestCase):
  def _compile(self, name: str, layers: int | None, choose) -> tuple[int, str]:
    """Returns the number of kernels and the text of a program."""
    model, quantization, engine = _CASES[name]
    if layers is not None:
      model = dataclasses.replace(model, num_layers=layers)
    weights = abstract_weights.shapes(model, 'bfloat16', quantization)
    settings = state.Settings(model, platform_configs.on_gpu(engine))
    run = abstract_model.GpuExecutables(
      settings, weights, topologies.H100.describe()[0]
    )
    [key] = [key for key in run.keys() if choose(key)]
    compiled = run.lower(key).compile()
    text = compiled.as_text()
    launches = _launches(text)
    logging.info(
      '%s, %d layers, %s: %d kernels, %s; %d MB of temporary memory',
      name,
      model.num_layers,
      key,
      launches.total(),
      dict(launches),
      compiled.memory_analysis().temp_size_in_bytes // 10**6,
    )
    return launches.total(), text

  @parameterized.parameters(
    ('llama', 5, 360),
    ('llama_int8', 7, 390),
    ('llama_fp8', 7, 390),
    ('gptj', 6, 330),
  )
  def test_decode_step_has_few_kernels_and_no_conditionals(
    self, name, by_pallas, most
  ):
    """Checks the number of all kernels, and those of Pallas in each layer."""
    kernels, text = self._compile(
      name, None, lambda key: isinstance(key, program_keys.Decode)
    )
    self.assertNotIn(' conditional(', text)
    layers = _CASES[name][0].num_layers
    self.assertEqual(text.count('__gpu$xla.gpu.triton'), by_pallas * layers)
    self.assertBetween(kernels, layers, most)

  @parameterized.parameters(
    ('llama', 1, 105), ('llama', 4, 105), ('gptj', 1, 130)
  )
  def test_prefill_has_one_kernel_for_attention(self, name, rows, most):
    """Checks all kernels, and that no layer but the last has scores."""

    def is_short(key) -> bool:
      kind = isinstance(key, program_keys.PrefillAndInsert)
      return kind and (key.rows, key.end) == (rows, 1024)

    kernels, text = self._compile(name, _LAYERS, is_short)
    self.assertNotIn(' conditional(', text)
    self.assertEqual(text.count('__gpu$xla.gpu.triton'), _LAYERS - 1)
    self.assertLessEqual(kernels, most)

  @parameterized.parameters(('llama', 90, 18), ('gptj', 115, 25))
  def test_prompts_in_a_row_are_prefilled_with_few_kernels(
    self, name, most, more
  ):
    """Checks all kernels, those of a further layer, and that none copies KV."""

    def is_long(key) -> bool:
      return isinstance(key, program_keys.PrefillPacked) and key.tokens == 2048

    counts = []
    for layers in (_LAYERS, _LAYERS + 1):
      kernels, text = self._compile(name, layers, is_long)
      counts.append(kernels)
      self.assertNotIn(' conditional(', text)
      self.assertNotIn(' copy(', text)
      self.assertEqual(text.count('__gpu$xla.gpu.triton'), layers - 1)
    self.assertLessEqual(counts[0], most)
    self.assertLessEqual(counts[1] - counts[0], more)

  def test_program_of_a_set_is_for_the_described_card(self):
    settings = state.Settings(
      dataclasses.replace(_LLAMA, num_layers=1),
      platform_configs.on_gpu(_LLAMA_ENGINE),
    )
    weights = abstract_weights.shapes(settings.model, 'bfloat16', None)
    gpu = topologies.H100.describe()[0]
    run = abstract_model.GpuExecutables(settings, weights, gpu)
    key = program_keys.Decode(_LLAMA_ENGINE.num_slots)
    program, _ = compile_set.build(run, key, {}, stablehlo=True)
    self.assertContainsSubset(
      (manifest.EXECUTABLE, manifest.STABLEHLO), program.files
    )
    made_for = configuration.from_executables(run, manifest.Serving('', {}))
    self.assertEqual(
      made_for.target, manifest.Target('cuda', topologies.H100.chip.kind, 1)
    )
    self.assertEqual(made_for.versions['runtime'], 'jax-cuda13-pjrt 0.10.2')


if __name__ == '__main__':
  absltest.main()
