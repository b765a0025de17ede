"""Compiles Python ahead of time, so that a container starts as fast as a host.

A container's file system is often not writable, and what is compiled at a start
is lost with the container.
"""

from collections.abc import Mapping
import pathlib
import py_compile
import sys
import tempfile

from deploy.images import layer


def of(entries: Mapping[str, layer.Entry]) -> dict[str, layer.Entry]:
  """Compiled modules for those sources among `entries` that compile.

  They say nothing of times, and are not compared with their sources. One after
  another in one process: what Python writes depends a little on which strings
  it has seen before.
  """
  compiled: dict[str, layer.Entry] = {}
  with tempfile.TemporaryDirectory() as directory:
    target = pathlib.Path(directory, 'module.pyc')
    for name, entry in sorted(entries.items()):
      if not name.endswith('.py') or not isinstance(entry, layer.File):
        continue
      try:
        py_compile.compile(
          str(entry.contents),
          str(target),
          dfile=f'/{name}',
          doraise=True,
          invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
      except py_compile.PyCompileError:
        # Packages ship templates and tests that are no Python of today.
        continue
      path = pathlib.PurePosixPath(name)
      cached = path.with_name('__pycache__') / (
        f'{path.stem}.{sys.implementation.cache_tag}.pyc'
      )
      compiled[str(cached)] = layer.File(target.read_bytes())
  return compiled
