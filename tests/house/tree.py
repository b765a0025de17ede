"""Finds the repository's sources for the other tests."""

import pathlib

# In Bazel, this file is in the runfiles, which have the repository's layout.
ROOT = pathlib.Path(__file__).parents[2]

_NOT_OURS = ('external', 'results')
_GENERATED = ('_pb2.py', '_pb2_grpc.py', '_stage2_bootstrap.py')


def files(pattern: str) -> list[pathlib.Path]:
  """Returns the paths of the repository's own files that match, sorted.

  The paths are relative to ROOT.
  """
  paths = (path.relative_to(ROOT) for path in ROOT.rglob(pattern))
  return sorted(
    path
    for path in paths
    if path.parts[0] not in _NOT_OURS
    and not path.parts[0].startswith(('.', 'bazel-'))
    and not path.name.endswith(_GENERATED)
    # rules_python gives each program a virtual environment.
    and not any(part.endswith('.venv') for part in path.parts)
  )


def is_production(path: pathlib.Path) -> bool:
  """Returns True if a Python file is neither a test nor only used by tests."""
  return (
    path.parts[0] != 'tests'
    and 'testing' not in path.parts
    and not path.name.endswith('_test.py')
  )
