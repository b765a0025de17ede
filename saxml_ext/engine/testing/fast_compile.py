"""Reduces the time that XLA takes to compile programs in tests.

XLA takes a second for each small program, and spends most of it on
optimization. Without optimization it takes a fifth of that time. Do not measure
speed with these settings.
"""

import os

_FLAGS = (
  '--xla_backend_optimization_level=0',
  '--xla_llvm_disable_expensive_passes=true',
  '--xla_cpu_use_fusion_emitters=false',
  '--xla_cpu_parallel_codegen_split_count=1',
)


def install() -> None:
  """Sets XLA's flags; call it before the first compilation.

  Flags that are already in XLA_FLAGS take precedence.
  """
  own = os.environ.get('XLA_FLAGS', '')
  os.environ['XLA_FLAGS'] = ' '.join([*_FLAGS, own]).strip()
