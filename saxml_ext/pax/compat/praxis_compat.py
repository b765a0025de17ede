"""Lets praxis 1.4.0 import and run on a current jax, with no TensorFlow.

praxis and the lingvo file it uses were written for jax 0.4 and take TensorFlow
for granted. Call `install` before the first import of praxis:

    from saxml_ext.pax.compat import praxis_compat

    praxis_compat.install()

    from praxis import beam_search

What is put back is what praxis' language model and its decoding touch; nothing
of how they compute is changed.
"""

from collections.abc import Callable
import importlib.util
import sys
import types
from typing import Any

import jax
from jax._src.lib import xla_client
import jax.lib
import jax.numpy as jnp


def install() -> None:
  """Puts back what praxis misses; calling it again changes nothing.

  Raises:
    RuntimeError: a praxis module that cannot be mended after the fact was
      imported before the first call.
  """
  if getattr(jax.lib, 'xla_client', None) is xla_client:
    return
  if 'praxis.decoder_utils' in sys.modules:
    raise RuntimeError(
      'praxis was imported before praxis_compat.install(): call it first.'
    )
  jax.lib.xla_client = xla_client
  jax.tree_map = _tree_map
  if importlib.util.find_spec('tensorflow') is None:
    _stand_in_for_tensorflow()
  _accept_newshape()


def _tree_map(
  f: Callable[..., Any],
  tree: Any,
  *rest: Any,
  is_leaf: Callable[[Any], bool] | None = None,
) -> Any:
  """jax.tree_map as of jax 0.4: None in `tree` matches anything, as None."""

  def leaf(x: Any) -> bool:
    return x is None or (is_leaf is not None and is_leaf(x))

  def call(x: Any, *others: Any) -> Any:
    # A caller's own is_leaf may have asked to see None.
    if x is None and not (is_leaf is not None and is_leaf(x)):
      return None
    return f(x, *others)

  return jax.tree_util.tree_map(call, tree, *rest, is_leaf=leaf)


def _stand_in_for_tensorflow() -> None:
  """Names that are looked up in TensorFlow, as types that nothing is of."""
  from lingvo.core import nested_map

  nested_map.data_structures = types.SimpleNamespace(
    _DictWrapper=type('_DictWrapper', (), {})
  )
  from praxis import base_hyperparams

  base_hyperparams.tf = types.SimpleNamespace(DType=type('DType', (), {}))


def _accept_newshape() -> None:
  """Gives decoder_utils the jnp.reshape that took its shape as `newshape`."""
  from praxis import decoder_utils

  def reshape(a: jax.Array, newshape: tuple[int, ...]) -> jax.Array:
    return jnp.reshape(a, newshape)

  decoder_utils.jnp = types.SimpleNamespace(
    **(vars(jnp) | {'reshape': reshape})
  )
