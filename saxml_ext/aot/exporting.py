"""Programs as StableHLO: for devices of other versions than they were made by.

An executable is for one version of the device's runtime. StableHLO is promised
to be read by later versions, and from it the same program is compiled there.
"""

import dataclasses
from typing import Any

import jax
from jax import export

from saxml_ext.engine import executables
from saxml_ext.engine.kernels import kernels

# What `with_layout_constraint` becomes, which XLA knows and JAX promises nothing
# of.
_LAYOUT = 'LayoutConstraint'


@dataclasses.dataclass(frozen=True)
class Flat:
  """A compiled function of leaves, called with trees.

  Attributes:
    compiled: the function.
    results: structure of what it returns.
  """

  compiled: jax.stages.Compiled
  results: Any

  def __call__(self, *args):
    return self.results.unflatten(self.compiled(*jax.tree.leaves(args)))


def stablehlo(run: executables.Executables, key: executables.Key) -> bytes:
  """A program as StableHLO with JAX's calling convention, for its devices.

  Its arguments and results are leaves: trees would need their classes to be
  known to whoever reads it.
  """
  signature = run.signature(key)
  leaves, tree = jax.tree.flatten(signature.args)
  function = run.jitted(key)

  def flat(*leaves):
    return tuple(jax.tree.leaves(function(*tree.unflatten(leaves))))

  jitted = jax.jit(
    flat,
    donate_argnums=_donated(signature),
    out_shardings=tuple(x.sharding for x in jax.tree.leaves(signature.results)),
  )
  # JAX does not know these functions, so it cannot promise that they stay.
  names = (*kernels.TARGETS, _LAYOUT)
  own = [export.DisabledSafetyCheck.custom_call(n) for n in names]
  exporter = export.export(
    jitted, platforms=[platform(run)], disabled_checks=own
  )
  if run.mesh is None:
    return bytes(exporter(*leaves).serialize())
  with jax.set_mesh(run.mesh):
    return bytes(exporter(*leaves).serialize())


def compile_exported(content: bytes, signature: executables.Signature) -> Flat:
  """Compiles what `stablehlo` made.

  Args:
    content: its bytes.
    signature: as of the `Executables` that it comes from.
  """
  exported = export.deserialize(bytearray(content))
  jitted = jax.jit(exported.call, donate_argnums=_donated(signature))
  compiled = jitted.lower(*jax.tree.leaves(signature.args)).compile()
  return Flat(compiled, jax.tree.structure(signature.results))


def platform(run: executables.Executables) -> str:
  """What an engine's programs are for: 'cpu', 'tpu' or 'cuda'."""
  if run.mesh is None:
    name = jax.default_backend()
  else:
    name = run.mesh.devices.flat[0].platform
  return 'cuda' if name == 'gpu' else name


def _donated(signature: executables.Signature) -> tuple[int, ...]:
  """Which leaves of the arguments may be overwritten."""
  owners = [i for i, a in enumerate(signature.args) for _ in jax.tree.leaves(a)]
  return tuple(n for n, i in enumerate(owners) if i in signature.donated)
