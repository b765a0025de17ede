"""Sets JAX up for a program that serves models."""

from collections.abc import Iterator
import contextlib
import logging

from absl import logging as absl_logging
import jax

from saxml_ext.common import errors
from saxml_ext.common.machine import accelerators
from saxml_ext.common.machine import machine_files

_XLA_BRIDGE = 'jax._src.xla_bridge'


def configure(cache_dir: str | None) -> None:
  """Call before the first use of a device.

  Args:
    cache_dir: where compiled programs are kept for the next start; None or
      empty: nowhere.
  """
  # It would tell of each accelerator that the machine does not have.
  logging.getLogger(_XLA_BRIDGE).setLevel(logging.WARNING)
  if cache_dir:
    jax.config.update('jax_compilation_cache_dir', cache_dir)
    # Small programs are many here, and each is compiled at every start.
    jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)
    jax.config.update('jax_persistent_cache_min_entry_size_bytes', -1)


def check_devices(files: machine_files.MachineFiles | None = None) -> None:
  """Sees that JAX computes on what the user means; the first use of a device.

  Warns where the machine has an accelerator that this program came without the
  means to use. A program that came with them and cannot use one ends, rather
  than compute for hours on the CPU: who wants that can say so.

  Args:
    files: of the machine; None: those under /.

  Raises:
    errors.FailedPrecondition: JAX cannot use the accelerator that this program
      is for, or none of the platforms that JAX_PLATFORMS names.
  """
  if told := accelerators.idle(files=files):
    absl_logging.warning('%s', told)
  found = accelerators.detect(files)
  for kind in accelerators.expected(files):
    if accelerators.is_meant(kind, jax.config.jax_platforms):
      _check(kind, found is not None and found.kind == kind)
  try:
    jax.devices()
  except RuntimeError as e:
    raise errors.FailedPrecondition(
      f'{accelerators.PLATFORMS}={jax.config.jax_platforms} cannot be used:'
      f' {_first_line(e)}; unset it, or set it to cpu'
    ) from e


def _check(kind: str, found: bool) -> None:
  """Sees that JAX can use an accelerator.

  Args:
    kind: of the accelerator.
    found: whether the machine shows one.

  Raises:
    errors.FailedPrecondition: JAX cannot, or not with the libtpu that it needs.
  """
  if kind == accelerators.TPU and (foreign := accelerators.foreign_libtpu()):
    raise errors.FailedPrecondition(foreign)
  if kind == accelerators.CUDA and not found:
    raise errors.FailedPrecondition(accelerators.unusable(kind))
  with _held_back(_XLA_BRIDGE) as records:
    try:
      device = jax.devices(kind)[0]
      version = ' '.join(device.client.platform_version.split())
      absl_logging.info('JAX uses %s: %s', device.device_kind, version)
      return
    except RuntimeError as e:
      # A plugin that fails is only logged, and then unknown to JAX; libtpu is
      # not that kind of plugin.
      logged = [
        record.exc_info[1]
        for record in records
        if record.exc_info and kind == accelerators.CUDA
      ]
      reason = f'JAX says "{_first_line(next(filter(None, logged), e))}"'
      records.clear()
      raise errors.FailedPrecondition(
        accelerators.unusable(kind, reason if found else '')
      ) from e


@contextlib.contextmanager
def _held_back(name: str) -> Iterator[list[logging.LogRecord]]:
  """Records of a logger, which are logged at the end as far as they are left."""
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
