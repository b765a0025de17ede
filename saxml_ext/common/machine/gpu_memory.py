"""Sets the share of a GPU's memory that models may use: --memory_fraction.

JAX reserves three quarters of each GPU by default, to leave room for other
programs. A server has the GPU to itself. What it leaves free is for CUDA's own
buffers and programs.
"""

from collections.abc import MutableMapping
import os
import shutil
import subprocess

from absl import flags

from saxml_ext.common import errors
from saxml_ext.common.machine import accelerators
from saxml_ext.common.machine import machine_files

# JAX reads these when it starts to use the GPU. The second name is older.
_VARIABLES = ('XLA_CLIENT_MEM_FRACTION', 'XLA_PYTHON_CLIENT_MEM_FRACTION')
_DEFAULT = 0.92
_MIB = 2**20
_QUERY = '--query-gpu=memory.total', '--format=csv,noheader,nounits'
_QUERY_SECS = 30.0

_MEMORY_FRACTION = flags.DEFINE_float(
  'memory_fraction',
  None,
  'The share of the memory of each NVIDIA GPU for models, above 0 and at most'
  f' 1. Default: ${_VARIABLES[0]}, or else {_DEFAULT}.',
)


def apply(
  files: machine_files.MachineFiles | None = None,
  environment: MutableMapping[str, str] = os.environ,
) -> float | None:
  """Sets JAX's variable as the flag requires, before JAX uses a device.

  Args:
    files: The machine's files; None stands for those under /.
    environment: The environment variables, for JAX and for child processes.

  Returns:
    The share of each GPU's memory; None if the program uses no NVIDIA GPU.

  Raises:
    errors.InvalidArgument: The flag or the variable is not such a share, the
      flag has no effect, or both are set.
  """
  given = _MEMORY_FRACTION.value
  platforms = environment.get(accelerators.PLATFORMS)
  used = accelerators.used(platforms, files, environment)
  if accelerators.CUDA not in used:
    if given is not None:
      raise errors.InvalidArgument(
        f'--memory_fraction={given} has no effect, because this program uses no'
        ' NVIDIA GPU. Omit it.'
      )
    return None
  name = next((n for n in _VARIABLES if environment.get(n)), None)
  if name is None:
    source = '--memory_fraction'
    text = str(_DEFAULT if given is None else given)
    environment[_VARIABLES[0]] = text
  elif given is None:
    source, text = name, environment[name]
  else:
    raise errors.InvalidArgument(
      f'--memory_fraction={given} and {name}={environment[name]} are both set.'
      ' Omit one of them.'
    )
  return _share(source, text)


def usable_bytes(fraction: float | None) -> int:
  """Returns the bytes for models on the smallest GPU; 0 if they are unknown.

  Args:
    fraction: The share of the GPU for models; None without a GPU.
  """
  program = shutil.which('nvidia-smi')
  if fraction is None or program is None:
    return 0
  try:
    text = subprocess.run(
      [program, *_QUERY],
      stdout=subprocess.PIPE,
      text=True,
      timeout=_QUERY_SECS,
      check=True,
    ).stdout
    return int(min(map(int, text.split())) * _MIB * fraction)
  except (OSError, subprocess.SubprocessError, ValueError):
    return 0  # The driver does not respond, or hides the memory.


def _share(source: str, text: str) -> float:
  """Returns the number in a text; raises InvalidArgument if it is no share."""
  try:
    share = float(text)
  except ValueError:
    share = 0.0
  if not 0 < share <= 1:
    raise errors.InvalidArgument(
      f'{source}={text} is not a share of the memory. Set a number above 0 and'
      ' at most 1, such as 0.9.'
    )
  return share
