"""What the processor that programs are compiled for is good at."""

import functools
import os
import re

_CPUINFO = '/proc/cpuinfo'
# XLA's option for the newest instructions that it may use.
_MOST = re.compile(r'--xla_cpu_max_isa=(\w+)')
_WITHOUT_AVX512 = ('AVX2', 'AVX', 'SSE4_2')


def without_avx512() -> bool:
  """Whether XLA was told to do without AVX-512, which we then do as well."""
  found = _MOST.findall(os.environ.get('XLA_FLAGS', ''))
  return bool(found) and found[-1].upper() in _WITHOUT_AVX512


@functools.cache
def features() -> frozenset[str]:
  """Names of the processor's features, as Linux calls them; else none.

  Those that XLA was told not to use are left out.
  """
  try:
    with open(_CPUINFO, encoding='utf-8') as file:
      lines = [line for line in file if line.startswith('flags')]
  except FileNotFoundError:  # Not Linux.
    return frozenset()
  found = frozenset(lines[0].split(':')[1].split() if lines else ())
  if without_avx512():
    newer = ('avx512', 'avx_vnni', 'amx')
    found = frozenset(f for f in found if not f.startswith(newer))
  return found


def prefers_fine_prompts() -> bool:
  """Whether activations of prompts are multiplied in 15 bits, not in 8.

  That takes as long as bfloat16 at best, a tenth to a third of a request's
  time, and is nearer to float32. A small GPT-J with uneven channels kept 100.0
  % of ROUGE-2 with prompts in bfloat16, and 99.5 % in int8. With a matrix unit
  int8 is 2,700 Gop/s and bfloat16 1,270 (an Intel Xeon), and all is int8.
  """
  return 'avx512_bf16' in features() and not has_int8_matrices()


def has_int8_dots() -> bool:
  """Whether there are vector instructions that sum products of int8."""
  return bool({'avx512_vnni', 'avx2'} & features())


def has_int8_matrices() -> bool:
  """Whether there is a matrix unit for int8."""
  return 'amx_int8' in features()
