"""Prepares a process that compiles for a Cloud TPU that is not there.

libtpu reads environment variables as it is loaded. Without them it asks the
metadata server of a cloud machine for its place in a slice, writes a log file
per process, and takes a lock that keeps a second process from compiling.
"""

import os

import jax

_ENVIRONMENT = {
  # No cloud machine's metadata server is asked.
  'TPU_SKIP_MDS_QUERY': '1',
  # Both answer what it would have been asked for. Any TPU will do: what is
  # compiled for is said by the topology.
  'TPU_WORKER_HOSTNAMES': 'localhost',
  'TPU_ACCELERATOR_TYPE': 'v5litepod-4',
  # No lock file, so that several processes can compile at once.
  'ALLOW_MULTIPLE_LIBTPU_LOAD': '1',
  'TPU_LOG_DIR': 'disabled',
}


def prepare() -> None:
  """Sets this process up; call it before any topology is described.

  Variables that are set already keep their values. Arrays of this process are
  on the CPU, also where there is a TPU. What is compiled from now on holds no
  path or line of a source file, so that the same program gives the same bytes
  wherever the sources lie.
  """
  for name, value in _ENVIRONMENT.items():
    os.environ.setdefault(name, value)
  jax.config.update('jax_platforms', 'cpu')
  jax.config.update('jax_traceback_in_locations_limit', 0)
