"""Configures JAX for a program that serves models."""

from collections.abc import Iterator
import contextlib
import logging
import os

from absl import logging as absl_logging
import jax

from saxml_ext.common import errors
from saxml_ext.common import files as files_lib
from saxml_ext.common.machine import accelerators
from saxml_ext.common.machine import machine_files

_XLA_BRIDGE = 'jax._src.xla_bridge'
_CACHE = 'jax._src.compilation_cache'


def configure(cache_dir: str | None) -> None:
  """Configures JAX; call this before the first use of a device.

  Args:
    cache_dir: The directory where compiled programs are kept for the next
      start. None or '' keeps none.

  Raises:
    errors.InvalidArgument: Another user may write the directory. Its programs
      are machine code.
  """
  # JAX would log a message for each accelerator that the machine does not have,
  # and for each change of the cache's settings.
  for name in (_XLA_BRIDGE, _CACHE):
    logging.getLogger(name).setLevel(logging.WARNING)
  if cache_dir:
    if os.path.isdir(cache_dir):
      try:
        files_lib.check_private(cache_dir)
      except files_lib.UnusableFileError as e:
        raise errors.InvalidArgument(f'--jax_cache_dir: {e}') from e
    jax.config.update('jax_compilation_cache_dir', cache_dir)
    # There are many small programs, and each would be compiled at every start.
    jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)
    jax.config.update('jax_persistent_cache_min_entry_size_bytes', -1)


def check_devices(files: machine_files.MachineFiles | None = None) -> None:
  """Checks that JAX uses the intended devices.

  This is the first use of a device. If the machine has an accelerator that this
  program does not support, it logs a warning. If the program supports an
  accelerator but cannot use it, it fails. Otherwise it would compute on the CPU
  for hours. To use the CPU on purpose, set JAX_PLATFORMS.

  Args:
    files: The files of the machine; None stands for those under /.

  Raises:
    errors.FailedPrecondition: JAX cannot use the accelerator of this program,
      or the platforms in JAX_PLATFORMS.
  """
  if warning := accelerators.idle(files=files):
    absl_logging.warning('%s', warning)
  detected = accelerators.detect(files)
  for kind in accelerators.used(jax.config.jax_platforms, files):
    _check(kind, detected is not None and detected.kind == kind)
  try:
    jax.devices()
  except RuntimeError as e:
    raise errors.FailedPrecondition(
      f'{accelerators.PLATFORMS}={jax.config.jax_platforms} cannot be used:'
      f' {_first_line(e)}. Unset it, or set it to cpu.'
    ) from e


def _check(kind: str, is_present: bool) -> None:
  """Checks that JAX can use an accelerator.

  Args:
    kind: The kind of the accelerator.
    is_present: True if the machine has one.

  Raises:
    errors.FailedPrecondition: JAX cannot use it, or uses a wrong libtpu.
  """
  if kind == accelerators.TPU and (foreign := accelerators.foreign_libtpu()):
    raise errors.FailedPrecondition(foreign)
  if kind == accelerators.CUDA and not is_present:
    raise errors.FailedPrecondition(accelerators.unusable(kind))
  with _held_back(_XLA_BRIDGE) as records:
    try:
      device = jax.devices(kind)[0]
      version = ' '.join(device.client.platform_version.split())
      absl_logging.info('JAX uses %s: %s', device.device_kind, version)
      return
    except RuntimeError as e:
      # If JAX's CUDA plugin fails, JAX only logs the error and then does not
      # know the platform. libtpu does not use this kind of plugin.
      logged = [
        record.exc_info[1]
        for record in records
        if record.exc_info and kind == accelerators.CUDA
      ]
      reason = f'JAX reports "{_first_line(next(filter(None, logged), e))}"'
      records.clear()
      raise errors.FailedPrecondition(
        accelerators.unusable(kind, reason if is_present else '')
      ) from e


@contextlib.contextmanager
def _held_back(name: str) -> Iterator[list[logging.LogRecord]]:
  """Yields the held-back records of a logger; logs the remaining ones last."""
  records: list[logging.LogRecord] = []
  logger = logging.getLogger(name)

  def hold(record: logging.LogRecord) -> bool:
    records.append(record)
    return False

  logger.addFilter(hold)
  try:
    yield records
  finally:
    logger.removeFilter(hold)
    for record in records:
      logger.handle(record)


def _first_line(error: BaseException) -> str:
  return str(error).partition('\n')[0].rstrip('.')
