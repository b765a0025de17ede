"""Lets XLA compile fast, for tests of what programs compute.

Small programs take XLA a second each, of which it spends most on making them
fast. Told not to, it takes a fifth of that. Speed must not be measured so.
"""

import os

_FLAGS = (
  '--xla_backend_optimization_level=0',
  '--xla_llvm_disable_expensive_passes=true',
  '--xla_cpu_use_fusion_emitters=false',
  '--xla_cpu_parallel_codegen_split_count=1',
)


def install() -> None:
  """Sets XLA's flags; call it before anything is compiled.

  Flags that XLA_FLAGS has already count more than these.
  """
  own = os.environ.get('XLA_FLAGS', '')
  os.environ['XLA_FLAGS'] = ' '.join([*_FLAGS, own]).strip()
