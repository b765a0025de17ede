"""Detects the versions of packages and Python, and the repository's commit."""

from collections.abc import Mapping
import importlib.metadata
import os
import platform
import shutil
import subprocess

PACKAGES = (
  'jax',
  'jaxlib',
  'libtpu',
  'numpy',
  'transformers',
  'torch',
  'mlcommons-loadgen',
  'onnxruntime',
)
# Packages that are also published under other names.
_OTHER_NAMES = {
  'mlcommons-loadgen': ('mlcommons_loadgen',),
  'libtpu': ('libtpu-nightly',),
  'onnxruntime': ('onnxruntime-gpu',),
}

_FRAMEWORKS = {
  'jax': 'JAX',
  'torch': 'PyTorch',
  'onnxruntime': 'ONNX Runtime',
}

# `bazel run` sets this to the workspace, because the program is elsewhere.
_WORKSPACE = 'BUILD_WORKSPACE_DIRECTORY'
_SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..')


def versions(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
  """Returns the versions of installed packages, "python" and "commit".

  The commit ends in "-dirty" if files of the repository were changed.
  """
  found = {'python': platform.python_version()}
  for package in PACKAGES:
    version = _version(package)
    if version is not None:
      found[package] = version
  commit = _commit(environment.get(_WORKSPACE, _SOURCES))
  return found | ({'commit': commit} if commit else {})


def stack(found: Mapping[str, str]) -> str:
  """Returns versions as one line, such as "Python 3.11.7, jax 0.10.2"."""
  packages = [
    f'{name} {version}'
    for name, version in found.items()
    if name not in ('python', 'commit')
  ]
  return ', '.join([f'Python {found["python"]}', *packages])


def framework(found: Mapping[str, str], package: str = 'jax') -> str:
  """Returns the name of a framework, with its version if it is known.

  Args:
    found: The result of `versions`.
    package: The package: jax, torch or onnxruntime.
  """
  name = _FRAMEWORKS.get(package, package)
  return f'{name} {found[package]}' if package in found else name


def _version(package: str) -> str | None:
  for name in (package, *_OTHER_NAMES.get(package, ())):
    try:
      return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
      continue
  return None


def _commit(directory: str) -> str:
  """Returns the checked-out commit; "" without git or a repository."""
  git = shutil.which('git')
  if git is None or not os.path.exists(os.path.join(directory, '.git')):
    return ''
  ended = subprocess.run(
    [
      *(git, '-C', directory, 'describe'),
      *('--always', '--dirty', '--abbrev=40', '--exclude=*'),
    ],
    capture_output=True,
    text=True,
    check=False,
  )
  return '' if ended.returncode else ended.stdout.strip()
