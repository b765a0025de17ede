"""Reduces the time that JAX takes to trace and compile programs in tests.

XLA takes a second for each small program, and spends most of it on
optimization. Without optimization it takes a fifth of that time. Do not measure
speed with these settings.

JAX creates many objects while it traces a program. Python's garbage collector
takes a sixth of the time of a test, unless it runs rarely and without the
objects of imported modules.
"""

import gc
import os

_FLAGS = (
  '--xla_backend_optimization_level=0',
  '--xla_llvm_disable_expensive_passes=true',
  '--xla_cpu_use_fusion_emitters=false',
  '--xla_cpu_parallel_codegen_split_count=1',
)


def install() -> None:
  """Sets XLA's flags, and makes garbage collection cheap.

  Call it before the first compilation. Flags that are already in XLA_FLAGS take
  precedence.
  """
  gc.set_threshold(50_000, 20, 50)
  gc.freeze()
  own = os.environ.get('XLA_FLAGS', '')
  os.environ['XLA_FLAGS'] = ' '.join([*_FLAGS, own]).strip()
