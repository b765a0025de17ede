"""Compares answers of the bundled models with the recorded ones.

The recorded answers are those of transformers in float32, see the files
reference.json. The engine must give the same tokens in float32. In bfloat16 and
int8 the leading tokens that agree are counted.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import json
import os
from typing import Any

import jax.numpy as jnp
import numpy as np

from benchmarks.gpu_cases import bpe
from benchmarks.gpu_cases import compilation
from saxml_ext.engine import architecture
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import request as request_lib
from saxml_ext.engine import runner as runner_lib
from saxml_ext.engine import variables as variables_lib
from saxml_ext.engine import weights as weights_lib

_ROOT = os.path.join(
  os.path.dirname(os.path.abspath(__file__)), '..', '..', 'harness', 'bundled'
)
_FORMATS = {'float32': None, 'bfloat16': None, 'int8': 'int8'}
_DTYPES = {'BF16': np.dtype(jnp.bfloat16), 'F32': np.dtype(np.float32)}

LLAMA = architecture.Architecture(
  residual=architecture.SEQUENTIAL,
  activation=architecture.SILU,
  gated=True,
  norm=architecture.RMS_NORM,
  biases=(),
)


@dataclasses.dataclass(frozen=True)
class Bundled:
  """A bundled model.

  Attributes:
    directory: Its directory below harness/bundled.
    template: The prompt of an article, as in saxml_ext/evaluation/dataset.py.
    model: Its sizes.
    engine: The settings of its recorded answers.
    stop_ids: The tokens that end an answer.
    begin: The beginning of the names of tensors.
    tensors: The names of tensors by field of the engine's variables, with the
      number of the layer as {}.
  """

  directory: str
  template: str
  model: config_lib.ModelConfig
  engine: Mapping[str, Any]
  stop_ids: tuple[int, ...]
  begin: str
  tensors: Mapping[str, str]


MODELS = {
  'gptj': Bundled(
    directory='.',
    template=(
      'Below is an instruction that describes a task, paired with an input that'
      ' provides further context. Write a response that appropriately completes'
      ' the request.\n\n### Instruction:\n{instruction}\n\n### Input:\n{input}'
      '\n\n### Response:'
    ),
    model=config_lib.ModelConfig(
      num_layers=4,
      model_dim=256,
      num_heads=4,
      head_dim=64,
      hidden_dim=1024,
      rotary_dim=32,
      vocab_size=4096,
    ),
    engine={'max_prompt': 512, 'num_beams': 4, 'min_new_tokens': 30},
    stop_ids=(4095,),
    begin='transformer.',
    tensors={
      'embedding': 'wte.weight',
      'layers.norm.scale': 'h.{}.ln_1.weight',
      'layers.norm.bias': 'h.{}.ln_1.bias',
      'layers.query': 'h.{}.attn.q_proj.weight',
      'layers.key': 'h.{}.attn.k_proj.weight',
      'layers.value': 'h.{}.attn.v_proj.weight',
      'layers.post': 'h.{}.attn.out_proj.weight',
      'layers.up': 'h.{}.mlp.fc_in.weight',
      'layers.up_bias': 'h.{}.mlp.fc_in.bias',
      'layers.down': 'h.{}.mlp.fc_out.weight',
      'layers.down_bias': 'h.{}.mlp.fc_out.bias',
      'final_norm.scale': 'ln_f.weight',
      'final_norm.bias': 'ln_f.bias',
      'head': '/lm_head.weight',
      'head_bias': '/lm_head.bias',
    },
  ),
  'llama': Bundled(
    directory='llama',
    template=(
      'Summarize the following news article in 128 tokens. Please output the'
      ' summary only, without any other text.\n\nArticle:\n{input}\n\nSummary:'
    ),
    model=config_lib.ModelConfig(
      num_layers=4,
      model_dim=256,
      num_heads=4,
      num_kv_heads=2,
      head_dim=64,
      hidden_dim=704,
      rotary_dim=64,
      vocab_size=4096,
      rotary_base=500000.0,
      rotary_scaling=architecture.RotaryScaling(8.0, 1.0, 4.0, 8192),
      architecture=LLAMA,
    ),
    engine={
      'max_prompt': 1024,
      'search': 'sample',
      'num_beams': 1,
      'max_top_k': 1,
      'min_new_tokens': 1,
      'max_stop_ids': 2,
    },
    stop_ids=(4092, 4095),
    begin='model.',
    tensors={
      'embedding': 'embed_tokens.weight',
      'layers.norm.scale': 'layers.{}.input_layernorm.weight',
      'layers.query': 'layers.{}.self_attn.q_proj.weight',
      'layers.key': 'layers.{}.self_attn.k_proj.weight',
      'layers.value': 'layers.{}.self_attn.v_proj.weight',
      'layers.post': 'layers.{}.self_attn.o_proj.weight',
      'layers.ff_norm.scale': 'layers.{}.post_attention_layernorm.weight',
      'layers.gate': 'layers.{}.mlp.gate_proj.weight',
      'layers.up': 'layers.{}.mlp.up_proj.weight',
      'layers.down': 'layers.{}.mlp.down_proj.weight',
      'final_norm.scale': 'norm.weight',
      'head': '/lm_head.weight',
    },
  ),
}


def compare(name: str, dtype: str, count: int, slots: int) -> dict[str, Any]:
  """Answers articles and compares the answers with the recorded ones.

  Args:
    name: A key of MODELS.
    dtype: "float32", "bfloat16", or "int8" for matrices beside float32.
    count: The number of articles: those with the shortest prompts.
    slots: The number of articles that are answered together.

  Returns:
    The numbers of answers and of equal ones, and the share of recorded tokens
    before the first difference.
  """
  bundled = MODELS[name]
  prompts, answers = _articles(bundled, count)
  longest = max(map(len, prompts))
  engine = config_lib.EngineConfig(
    **{**bundled.engine, 'max_prompt': -(-longest // 64) * 64},
    eos_id=bundled.stop_ids[0],
    num_slots=slots,
    decode_widths=(slots,),
    prompt_buckets=(-(-longest // 64) * 64,),
    kv_dtype='bfloat16' if dtype == 'bfloat16' else 'float32',
  )
  engine = compilation.for_platform(engine)
  floats = 'bfloat16' if dtype == 'bfloat16' else 'float32'
  weights = weights_lib.from_pax(
    _variables(bundled), bundled.model, floats, _FORMATS[dtype]
  )
  programs = compilation.compile_programs(weights, bundled.model, engine)
  runner = programs.runner(weights, bundled.model, engine)
  requests = [
    request_lib.Request(np.asarray(ids, np.int32), stop_ids=bundled.stop_ids)
    for ids in prompts
  ]
  ends = set(bundled.stop_ids)
  results = [_trimmed(r, ends) for r in _answer(runner, requests)]
  expected = [_trimmed(a, ends) for a in answers]
  shared = sum(map(_shared, results, expected))
  return {
    'answers': len(results),
    'equal': sum(a == b for a, b in zip(results, expected)),
    'leading_tokens_equal': shared / max(1, sum(map(len, expected))),
    'compile_seconds': programs.seconds,
  }


def _articles(
  bundled: Bundled, count: int
) -> tuple[list[list[int]], list[list[int]]]:
  """Returns the prompts and recorded answers of the shortest articles."""
  directory = os.path.join(_ROOT, bundled.directory)
  with open(os.path.join(_ROOT, 'eval.json'), encoding='utf-8') as file:
    articles = json.load(file)
  path = os.path.join(directory, 'reference.json')
  with open(path, encoding='utf-8') as file:
    answers = json.load(file)['tokens']
  tokenizer = bpe.Tokenizer(os.path.join(directory, 'model', 'tokenizer.json'))
  chosen = sorted(range(len(articles)), key=lambda i: len(articles[i]['input']))
  limit = bundled.engine['max_prompt']
  prompts = [
    tokenizer.encode(bundled.template.format(**articles[i]))[:limit]
    for i in chosen[:count]
  ]
  return prompts, [answers[i] for i in chosen[:count]]


def _answer(
  runner: runner_lib.Runner, requests: Sequence[request_lib.Request]
) -> list[list[int]]:
  """Returns the best answer of each request; refills slots as they end."""
  waiting = sorted(range(len(requests)), key=lambda i: len(requests[i].tokens))
  answers: list[list[int]] = [[] for _ in requests]
  held: dict[int, int] = {}
  while waiting or held:
    free = [s for s in range(runner.num_slots) if s not in held]
    batch = {slot: waiting.pop() for slot in free[: len(waiting)]}
    held |= batch
    if batch:
      runner.prefill_and_insert({s: requests[i] for s, i in batch.items()})
    for slot, result in runner.step().items():
      answers[held.pop(slot)] = result.hypotheses[0].tokens.tolist()
  return answers


def _trimmed(tokens: Sequence[int], ends: set[int]) -> list[int]:
  """Returns an answer without the tokens that end it."""
  result = list(tokens)
  while result and result[-1] in ends:
    result.pop()
  return result


def _shared(a: Sequence[int], b: Sequence[int]) -> int:
  """Returns the number of leading tokens that both answers share."""
  differing = (i for i, (x, y) in enumerate(zip(a, b)) if x != y)
  return next(differing, min(len(a), len(b)))


def _tensors(path: str) -> dict[str, np.ndarray]:
  """Returns all tensors of a safetensors file, in float32."""
  with open(path, 'rb') as file:
    header = json.loads(file.read(int.from_bytes(file.read(8), 'little')))
    data = file.read()
  header.pop('__metadata__', None)
  result = {}
  for name, entry in header.items():
    begin, end = entry['data_offsets']
    array = np.frombuffer(data[begin:end], _DTYPES[entry['dtype']])
    result[name] = array.astype(np.float32).reshape(entry['shape'])
  return result


def _variables(bundled: Bundled) -> dict[str, np.ndarray]:
  """Returns a bundled model as PAX variables.

  Matrices are transposed, and the dimensions of Llama's heads that rotate
  together become neighbors; see saxml_ext/families/layout.py.
  """
  path = os.path.join(_ROOT, bundled.directory, 'model', 'model.safetensors')
  tensors = _tensors(path)
  table = variables_lib.table_of(bundled.model.architecture)
  result = {}
  for row, layer in table.entries(bundled.model, joined=False):
    name = bundled.tensors[row.field].format(layer)
    name = name[1:] if name[0] == '/' else bundled.begin + name
    tensor = tensors[name]
    if row.is_matrix and row.field != 'layers.post':
      tensor = tensor.T
    if bundled.directory == 'llama' and row.field in (
      'layers.query',
      'layers.key',
    ):
      heads = tensor.reshape(len(tensor), -1, 2, bundled.model.head_dim // 2)
      tensor = heads.swapaxes(-1, -2)
    result[row.path(layer)] = tensor.reshape(row.shape(bundled.model))
  return result
