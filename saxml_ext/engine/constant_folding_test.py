"""Tests that XLA need not compute large constants while it compiles.

XLA interprets operations that depend on no argument. For keys and values of
several megabytes, this takes minutes.
"""

from collections.abc import Iterator, Sequence
import dataclasses
import math
from typing import Any

from absl.testing import absltest
from absl.testing import parameterized
import jax
from jax.extend import core
from jax.interpreters import partial_eval

from saxml_ext.engine import abstract_weights
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import executables
from saxml_ext.engine import logical
from saxml_ext.engine import platform_configs
from saxml_ext.engine import state

_MODEL = config_lib.ModelConfig(
  num_layers=2,
  model_dim=256,
  num_heads=4,
  head_dim=64,
  hidden_dim=256,
  rotary_dim=64,
  vocab_size=8192,
)
# Nothing is compiled, so the sizes cost no time.
_ENGINE = config_lib.EngineConfig(
  eos_id=1,
  num_slots=16,
  decode_widths=(16,),
  max_prompt=2048,
  prompt_buckets=(1024, 2048),
)
_CONTEXT = dict(
  search='any',
  beam_search=False,
  max_context=4096,
  max_prompt=4095,
  prefill_chunk=512,
  prompt_buckets=(512,),
  suffix_block=128,
)
# The largest array that may be computed from constants. A layer's keys have
# 8,388,608 numbers.
_MOST = 1 << 14
# XLA does not compute the results of these operations. The last one calls our
# kernels.
_NOT_FOLDED = ('broadcast_in_dim', 'copy', 'iota', 'ffi_call')


def _inner(equation: core.JaxprEqn) -> Iterator[core.Jaxpr]:
  for value in equation.params.values():
    for x in value if isinstance(value, tuple | list) else (value,):
      if isinstance(x, core.ClosedJaxpr):
        yield x.jaxpr
      elif isinstance(x, core.Jaxpr):
        yield x


def _folded(
  jaxpr: core.Jaxpr, given: Sequence[bool]
) -> Iterator[tuple[str, int]]:
  """Yields operations on constants, each with the size of its largest array.

  Args:
    jaxpr: The program.
    given: True for each argument that is a constant.
  """
  constants: set[Any] = set(jaxpr.constvars)
  constants.update(v for v, known in zip(jaxpr.invars, given) if known)
  for equation in jaxpr.eqns:
    known = [
      isinstance(v, core.Literal) or v in constants for v in equation.invars
    ]
    inner = list(_inner(equation))
    for other in inner:
      # Loops and branches are not inlined.
      inlined = equation.primitive.name == 'jit'
      size = len(other.invars)
      yield from _folded(other, known if inlined else [False] * size)
    if not all(known):
      continue
    constants.update(equation.outvars)
    if not inner and equation.primitive.name not in _NOT_FOLDED:
      arrays = [*equation.invars, *equation.outvars]
      sizes = [math.prod(v.aval.shape) for v in arrays]
      yield equation.primitive.name, max(sizes)


class ConstantFoldingTest(parameterized.TestCase):
  @parameterized.product(
    kind=('separate', 'stacked', 'context', 'gpu'),
    kv_dtype=('bfloat16', 'int8'),
  )
  def test_programs_compute_nothing_large_from_constants(self, kind, kv_dtype):
    more = _CONTEXT if kind == 'context' else {}
    engine = dataclasses.replace(_ENGINE, kv_dtype=kv_dtype, **more)
    stacked = kind in ('stacked', 'context')
    platform = 'gpu' if kind == 'gpu' else 'cpu'
    if platform == 'gpu':
      engine = platform_configs.on_gpu(engine)
    else:
      engine = platform_configs.on_cpu(engine)
    weights = abstract_weights.shapes(
      _MODEL, 'bfloat16', 'int8', stacked=stacked
    )
    settings = state.Settings(_MODEL, engine)
    for key in executables.Executables(settings, weights).keys():
      program = key.program(state.Shapes(settings, stacked))
      with self.subTest(str(key)), logical.targeting(platform):
        traced = jax.make_jaxpr(program.function)(weights, *program.args)
        needed = [True] * len(traced.jaxpr.outvars)
        jaxpr, arguments = partial_eval.dce_jaxpr(traced.jaxpr, needed)
        folded = _folded(jaxpr, [False] * sum(arguments))
        large = [(name, size) for name, size in folded if size > _MOST]
        self.assertEmpty(large)


if __name__ == '__main__':
  absltest.main()
