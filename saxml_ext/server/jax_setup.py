"""Sets JAX up for a program that serves models."""

import logging

import jax


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
