"""Creates a small set of costs with round figures."""

from benchmarks.tpu_estimate import rules
from benchmarks.tpu_estimate.compiled import costs

MODEL = {
  'num_layers': 28,
  'model_dim': 4096,
  'num_heads': 16,
  'head_dim': 256,
  'hidden_dim': 16384,
  'vocab_size': 50401,
}
# A millisecond has this many cycles on a v5e with a clock rate of 1.5 GHz.
MILLISECOND = 1.5e6


def milliseconds(count: float) -> costs.Cost:
  """Returns a cost of `count` milliseconds by the central rule."""
  cycles = count * MILLISECOND / rules.CENTRAL.computing
  return costs.Cost({costs.MATRICES: cycles})


def small(step: float = 20.0, prefill: float = 10.0) -> costs.Set:
  """Returns a set with 8 slots.

  Args:
    step: The milliseconds of a decode step.
    prefill: The milliseconds to prefill 512 tokens. A prefill of 1919 tokens
      takes three times as long.
  """
  memory = dict.fromkeys(
    ('peak', 'arguments', 'temporaries', 'outputs', 'aliased', 'code'), 2**30
  )

  def program(once: float, step: float | None = None) -> costs.Program:
    steps = None if step is None else milliseconds(step)
    return costs.Program(milliseconds(once), steps, memory)

  return costs.Set(
    title='A test',
    topology='v5e 2x2',
    slots=8,
    beams=4,
    kv='int8',
    weights='int8',
    model=MODEL,
    compiler='none',
    programs={
      'decode 8': program(0, step),
      'prefill_and_insert 1 0 512': program(prefill),
      'prefill_and_insert 1 0 1919': program(3 * prefill),
    },
  )
