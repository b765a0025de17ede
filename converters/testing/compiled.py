"""Makes the tests of a process compile each XLA program only once.

Every Runner and every layered model jits its own functions. So a test that
quantizes and scores several models would compile the same programs repeatedly.
With JAX's cache on disk, only the first compilation of each takes place.
"""

import contextlib
import tempfile

import jax


@contextlib.contextmanager
def once():
  """Caches compiled programs on disk for the duration of the block."""
  with tempfile.TemporaryDirectory() as directory:
    settings = {
      'jax_compilation_cache_dir': directory,
      'jax_persistent_cache_min_compile_time_secs': 0,
      'jax_persistent_cache_min_entry_size_bytes': -1,
    }
    before = {name: getattr(jax.config, name) for name in settings}
    try:
      for name, value in settings.items():
        jax.config.update(name, value)
      yield
    finally:
      for name, value in before.items():
        jax.config.update(name, value)
