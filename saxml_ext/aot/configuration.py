"""Describes the inputs of programs compiled in this process, for manifests."""

from collections.abc import Mapping, Sequence
import functools
import hashlib
from importlib import metadata
import inspect
import os
import platform
import re
import types
from typing import Any

import jax
import jaxlib

from saxml_ext.aot import manifest
from saxml_ext.aot import serialization
from saxml_ext.engine import executables
from saxml_ext.engine import program_keys
from saxml_ext.engine.kernels import kernels

_ENGINE = 'saxml_ext.engine.'
# Matches the CPU features of Linux that affect the choice of instructions.
_INSTRUCTIONS = re.compile(
  r'(s?sse|avx|amx|fma|f16c|bmi|popcnt|abm|movbe|v?aes|v?pclmul|gfni|sha_ni)'
)


def from_executables(
  run: executables.Executables, serving: manifest.Serving
) -> manifest.Configuration:
  """Returns the configuration of an engine's programs.

  Args:
    run: The engine's programs. The devices may be those of a described
      topology.
    serving: The params that the engine was created from.
  """
  mesh = run.mesh
  devices = serialization.devices(run)
  return manifest.Configuration(
    serving=serving,
    target=target(devices),
    versions=versions(devices[0]),
    mesh=() if mesh is None else tuple(mesh.devices.shape),
    model=run.settings.model,
    engine=run.settings.engine,
    weights=_leaves(run.signature(program_keys.EmptyState()).args[0]),
  )


def target(devices: Sequence[Any]) -> manifest.Target:
  """Returns the properties of the devices that compiled code depends on."""
  first = devices[0]
  if first.platform == 'cpu':
    return manifest.Target(
      platform='cpu',
      kind=platform.machine(),
      devices=len(devices),
      features=tuple(sorted(filter(_INSTRUCTIONS.match, kernels.features()))),
      threads=len(os.sched_getaffinity(0)),
    )
  return manifest.Target(
    platform='cuda' if first.platform == 'gpu' else first.platform,
    kind=first.device_kind,
    devices=len(devices),
    bounds=_bounds(devices),
    host_bounds=_bounds(
      [d for d in devices if d.process_index == first.process_index]
    ),
  )


def versions(device: Any) -> Mapping[str, str]:
  """Returns the versions of all software that compiles for a device."""
  return {
    'jax': jax.__version__,
    'jaxlib': jaxlib.__version__,
    'runtime': _runtime(device),
    manifest.ENGINE: _engine(device.platform),
  }


def _runtime(device: Any) -> str:
  """Returns the version of the software that compiles for a device."""
  if device.platform != 'gpu':
    return device.client.platform_version
  # The version that a described GPU has is its name.
  return ', '.join(
    f'{plugin.name} {plugin.version}'
    for number in (12, 13)
    for plugin in metadata.distributions(name=f'jax-cuda{number}-pjrt')
  )


def _bounds(devices: Sequence[Any]) -> tuple[int, ...]:
  """Returns the extent of the coordinates of TPUs."""
  coords = [d.coords for d in devices if d.platform == 'tpu']
  return tuple(max(axis) - min(axis) + 1 for axis in zip(*coords))


def _leaves(weights: Any) -> dict[str, manifest.Leaf]:
  leaves, _ = jax.tree_util.tree_flatten_with_path(weights)
  return {
    jax.tree_util.keystr(path, simple=True, separator='.'): manifest.Leaf(
      leaf.shape, leaf.dtype.name, _spec(leaf)
    )
    for path, leaf in leaves
  }


def _spec(leaf: jax.ShapeDtypeStruct) -> tuple[str | None, ...]:
  spec = getattr(leaf.sharding, 'spec', ())
  return tuple(
    '+'.join(axes) if isinstance(axes, tuple) else axes for axes in spec
  )


@functools.cache
def _engine(platform_name: str) -> str:
  """Returns a hash of our code that builds the programs or that they call.

  This covers the sources of the engine's modules. On CPU it also covers the
  kernels, because their arguments and results may change without a change in
  Python.
  """
  modules: dict[str, types.ModuleType] = {}
  waiting = [executables]
  while waiting:
    module = waiting.pop()
    if module.__name__ not in modules:
      modules[module.__name__] = module
      waiting += [
        value
        for value in vars(module).values()
        if inspect.ismodule(value) and value.__name__.startswith(_ENGINE)
      ]
  total = hashlib.sha256()
  for name in sorted(modules):
    total.update(f'{name}\n{inspect.getsource(modules[name])}\n'.encode())
  if platform_name == 'cpu':
    with open(kernels.LIBRARY, 'rb') as file:
      total.update(file.read())
  return total.hexdigest()[:16]
