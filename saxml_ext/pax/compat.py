"""Lets praxis and paxml 1.4.0 run on current jax and orbax versions.

praxis and paxml were written for jax 0.4 and require TensorFlow. With this
module they run without TensorFlow. Call `install_praxis` before the first
import of praxis. Call `install_paxml`, which does both, before the first import
of paxml:

    from saxml_ext.pax import compat

    compat.install_praxis()

    from praxis import beam_search

For praxis, this module restores the names that its language model and its
decoding use. Their computations stay unchanged. Checkpoints are written and
read by paxml's own code in paxml's own layouts. The changes for paxml are:

- paxml's step names lack a method that orbax requires by now.
- orbax has moved the hooks that give paxml's checkpoint handler control over
  the directory name of a variable. Without the hooks, a plain checkpoint is
  written to `state/0`, `state/1`, ..., and later is not found. There is no
  error on writing.
- paxml's experiments import input pipelines, which need TensorFlow.
- In the plain layout, orbax now adds its own metadata about these numbered
  directories, which older versions of it would follow.
- In the plain layout, orbax reads a lost file as zeros.

fiddle parses a whole module again for each lambda that is a default of praxis
or paxml. Here it uses Python's own parser, which saves 13 s for paxml.

Importing paxml takes seconds and about 300 MB, so call `install_paxml` late.
"""

import ast
from collections.abc import Callable
import functools
import importlib.util
import inspect
import sys
import types
from typing import Any

import jax
from jax._src.lib import xla_client
import jax.lib
import jax.numpy as jnp

_SUMMARIES = 'clu.metric_writers.summary_writer'
_TRAINING_DATA = 'paxml.tasks.lm.input_generator'


def install_praxis() -> None:
  """Restores the names that praxis misses; further calls change nothing.

  Raises:
    RuntimeError: A praxis module was imported before the first call, and it
      cannot be changed after its import.
  """
  if getattr(jax.lib, 'xla_client', None) is xla_client:
    return
  if 'praxis.decoder_utils' in sys.modules:
    raise RuntimeError(
      'praxis was imported before compat.install_praxis(). Call it first.'
    )
  jax.lib.xla_client = xla_client
  jax.tree_map = _tree_map
  _find_lambdas()
  if importlib.util.find_spec('tensorflow') is None:
    _stand_in_for_tensorflow()
  _accept_newshape()


def _tree_map(
  f: Callable[..., Any],
  tree: Any,
  *rest: Any,
  is_leaf: Callable[[Any], bool] | None = None,
) -> Any:
  """Maps a tree like jax.tree_map of jax 0.4: None matches any subtree."""

  def leaf(x: Any) -> bool:
    return x is None or (is_leaf is not None and is_leaf(x))

  def call(x: Any, *more: Any) -> Any:
    # The caller's own is_leaf may request None values.
    if x is None and not (is_leaf is not None and is_leaf(x)):
      return None
    return f(x, *more)

  return jax.tree_util.tree_map(call, tree, *rest, is_leaf=leaf)


def _find_lambdas() -> None:
  """Makes fiddle find the source of a lambda by Python's parser."""
  from fiddle._src.experimental import auto_config

  slow = auto_config._getsource_for_lambda

  def get_source(function: types.FunctionType) -> str:
    source = ''.join(inspect.findsource(function)[0])
    lambdas = _lambdas(source).get(function.__code__.co_firstlineno, [])
    if len(lambdas) != 1:
      return slow(function)  # It reports the reason.
    # A lambda in parentheses may have several lines.
    return f'({ast.get_source_segment(source, lambdas[0])})'

  auto_config._getsource_for_lambda = get_source


@functools.cache
def _lambdas(source: str) -> dict[int, list[ast.Lambda]]:
  """Returns a module's lambdas by line."""
  lambdas: dict[int, list[ast.Lambda]] = {}
  for node in ast.walk(ast.parse(source)):
    if isinstance(node, ast.Lambda):
      lambdas.setdefault(node.lineno, []).append(node)
  return lambdas


def _stand_in_for_tensorflow() -> None:
  """Replaces the TensorFlow names in use by types that have no instances."""
  from lingvo.core import nested_map

  nested_map.data_structures = types.SimpleNamespace(
    _DictWrapper=type('_DictWrapper', (), {})
  )
  from praxis import base_hyperparams

  base_hyperparams.tf = types.SimpleNamespace(DType=type('DType', (), {}))


def _accept_newshape() -> None:
  """Gives decoder_utils a jnp.reshape with the old `newshape` parameter."""
  from praxis import decoder_utils

  def reshape(a: jax.Array, newshape: tuple[int, ...]) -> jax.Array:
    return jnp.reshape(a, newshape)

  decoder_utils.jnp = types.SimpleNamespace(
    **(vars(jnp) | {'reshape': reshape})
  )


def install_paxml() -> None:
  """Restores the names that paxml misses; further calls change nothing.

  Raises:
    RuntimeError: praxis was imported before the first call; see
      `install_praxis`.
  """
  install_praxis()
  if importlib.util.find_spec('tensorflow') is None:
    _stand_in_for_summaries()
    # Other modules use names of this module only to load data. So an empty
    # module is enough.
    sys.modules.setdefault(_TRAINING_DATA, types.ModuleType(_TRAINING_DATA))
  from paxml import checkpoints

  if not hasattr(checkpoints.PaxCheckpointHandler, '_names_variables'):
    _name_steps()
    _name_variables()


def _stand_in_for_summaries() -> None:
  """Replaces the TensorBoard writer that clu imports but does not use."""
  if _SUMMARIES not in sys.modules:
    module = types.ModuleType(_SUMMARIES)
    # Type checkers do not know this attribute of the module.
    vars(module)['SummaryWriter'] = type('SummaryWriter', (), {})
    sys.modules[_SUMMARIES] = module


def _name_steps() -> None:
  """Adds `find_step`: like `find_metadata`, but a missing step is an error."""
  from paxml import checkpoint_paths

  def find_step(self: Any, base_path: Any, step: int) -> Any:
    metadata = self.find_metadata(base_path, step)
    if metadata is None:
      raise ValueError(
        f'{base_path} has no step {step}. Choose one of its checkpoint_<step>.'
      )
    return metadata

  name_format = checkpoint_paths.PaxStepNameFormat
  name_format.find_step = find_step
  name_format.__abstractmethods__ -= {'find_step'}


def _name_variables() -> None:
  """Makes orbax use the handler's names when it saves and restores."""
  from paxml import checkpoints

  handler = checkpoints.PaxCheckpointHandler
  make = handler.__init__

  def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
    make(self, *args, **kwargs)
    own = self._handler_impl
    default = own.get_param_names
    own.get_param_names = lambda item: (
      default(item) if self._param_names is None else self._param_names
    )
    if not self._use_ocdbt:
      own._write_metadata_file = _write_nothing

  async def _maybe_deserialize(
    self: Any, item: Any, metadata: Any, param_infos: Any, restore_args: Any
  ) -> Any:
    # paxml's own method would add the names here, which has happened already.
    # It is skipped, because orbax has since added a parameter to the method.
    strict = jax.tree.map(
      lambda info: (
        info
        if info.is_ocdbt_checkpoint
        else info.replace(raise_array_data_missing_error=True)
      ),
      param_infos,
    )
    return await super(handler, self)._maybe_deserialize(
      item, metadata, strict, restore_args
    )

  handler.__init__ = __init__
  handler._maybe_deserialize = _maybe_deserialize
  handler._names_variables = True


async def _write_nothing(*args: Any, **kwargs: Any) -> None:
  del args, kwargs
