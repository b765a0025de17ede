"""Sets JAX up for a program that serves models."""

import logging

from absl import logging as absl_logging
import jax

from saxml_ext.common import errors
from saxml_ext.common.machine import accelerators


def configure(cache_dir: str | None) -> None:
  """Call before the first use of a device.

  Args:
    cache_dir: where compiled programs are kept for the next start; None or
      empty: nowhere.
  """
  # It would tell of each accelerator that the machine does not have.
  logging.getLogger('jax._src.xla_bridge').setLevel(logging.WARNING)
  if cache_dir:
    jax.config.update('jax_compilation_cache_dir', cache_dir)
    # Small programs are many here, and each is compiled at every start.
    jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)
    jax.config.update('jax_persistent_cache_min_entry_size_bytes', -1)


def check_devices() -> None:
  """Sees that JAX computes on what the user means; the first use of a device.

  Warns where the machine has an accelerator that this program came without the
  means to use. A program that came with them and cannot use one ends, rather
  than compute for hours on the CPU: who wants that can say so.

  Raises:
    errors.FailedPrecondition: JAX cannot use the accelerator that this program
      is for, or none of the platforms that JAX_PLATFORMS names.
  """
  if told := accelerators.idle():
    absl_logging.warning('%s', told)
  found = accelerators.detect()
  for kind in accelerators.expected():
    if not accelerators.is_meant(kind, jax.config.jax_platforms):
      continue
    if kind == accelerators.CUDA and not found:
      # JAX would tell with a traceback.
      raise errors.FailedPrecondition(accelerators.unusable(kind))
    try:
      jax.devices(kind)
    except RuntimeError as e:
      reason = f'JAX says "{_first_line(e)}"' if found else ''
      raise errors.FailedPrecondition(
        accelerators.unusable(kind, reason)
      ) from e
  try:
    jax.devices()
  except RuntimeError as e:
    raise errors.FailedPrecondition(
      f'{accelerators.PLATFORMS}={jax.config.jax_platforms} cannot be used:'
      f' {_first_line(e)}; unset it, or set it to cpu'
    ) from e


def _first_line(error: Exception) -> str:
  return str(error).partition('\n')[0]
