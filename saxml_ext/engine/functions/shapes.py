"""What a program is, and the shapes of the state that it is called with."""

from collections.abc import Callable
import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from saxml_ext.engine import state
from saxml_ext.engine.attention import cache


class Program(NamedTuple):
  """What to compile.

  function: of the weights and more; args: the shapes of what more; results:
  the shapes of what it returns, known without tracing it; donated: which
  arguments it may overwrite, the weights being argument 0.
  """

  function: Callable
  args: tuple[Any, ...]
  results: Any
  donated: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class Shapes:
  """Shapes of the state, of which programs are made.

  Attributes:
    settings: static.
    stacked: whether layers, and so their KV, are stacked.
  """

  settings: state.Settings
  stacked: bool

  def slots(self) -> state.Slots:
    return jax.eval_shape(lambda: state.empty_slots(self.settings))

  def segments(self, end: int) -> tuple[cache.Block, ...]:
    """Those that a prompt of `end` tokens reaches."""
    count = self.settings.engine.segments_for(end)
    return jax.eval_shape(
      lambda: tuple(
        state.empty_segment(self.settings, index, self.stacked)
        for index in range(count)
      )
    )

  def suffix(self) -> cache.Block:
    return jax.eval_shape(
      lambda: state.empty_suffix(self.settings, self.stacked)
    )

  def empty(self) -> state.Empty:
    return jax.eval_shape(lambda: state.empty(self.settings, self.stacked))


def int32(*shape: int) -> jax.ShapeDtypeStruct:
  """The shape of integers."""
  return jax.ShapeDtypeStruct(shape, jnp.int32)
