"""Turns serving params of ours into classes that upstream's server serves.

Such a class derives from upstream's own GPT-J, and so has its Pax experiment
and its serving template, and takes the attributes that our params set. What
upstream has no attribute for is an error: it would be without effect.
"""

import types
from typing import Any

from absl import logging
from jax import numpy as jnp
from saxml.gptj_overlay import xla_flags
from saxml.server import servable_model_registry
from saxml.server.pax import quantization
from saxml.server.pax.lm.params import gptj as upstream

from saxml_ext.params import template

# Ours are names, upstream's are types.
_DTYPES = ('MODEL_DTYPE', 'FPROP_DTYPE')
# Ours is an attribute, upstream's a class decorator.
_QUANTIZATION = 'QUANTIZATION'


def of(name: str, params: type[template.ServableLMParams]) -> type:
  """A class with the attributes of `params` for upstream's registry.

  A class with XLA in its name compiles with the flags of the MLPerf
  submissions, and one with QUANTIZATION serves an int8 checkpoint, as they did.

  Args:
    name: the dotted name under which to register it.
    params: what to serve.

  Returns:
    A subclass of upstream's `GPTJ`.

  Raises:
    AttributeError: upstream has no such attribute, or no way to hand flags to
      the compiler.
    ValueError: upstream's server cannot do what an attribute asks for, or
      would not register the class under `name`.
  """
  values = attributes(params)
  quantized = values.pop(_QUANTIZATION, 'none')
  for attribute in _DTYPES:
    if attribute in values:
      values[attribute] = getattr(jnp, values[attribute])
  _check(name, values)
  own_name = name.rpartition('.')[2]
  body = {
      '__doc__': params.__doc__,
      '__module__': __name__,
      'sax_registration_name': classmethod(lambda cls: name),
      'serving_mesh_shape': classmethod(_serving_mesh_shape),
      **values,
  }
  # Unlike type(), takes the metaclass of upstream's class.
  servable = types.new_class(
      own_name, (upstream.GPTJ,), exec_body=lambda space: space.update(body)
  )
  if 'XLA' in own_name:
    servable = _with_xla_flags(servable)
  return _registrable(name, _quantized(name, servable, quantized))


def attributes(params: type[template.ServableLMParams]) -> dict[str, Any]:
  """What `params` and their bases set, the template's defaults left out."""
  found = {}
  for base in reversed(params.__mro__):
    if issubclass(base, template.ServableLMParams):
      if base is not template.ServableLMParams:
        found.update({k: v for k, v in vars(base).items() if k.isupper()})
  return found


def warn_of_changes(name: str, servable: type) -> None:
  """Logs in what `servable` differs from what upstream registered as `name`."""
  theirs = servable_model_registry.get(name)
  if theirs is None:
    return
  for attribute in dir(theirs):
    if attribute.isupper():
      old, new = getattr(theirs, attribute), getattr(servable, attribute, None)
      if old != new:
        logging.warning(
            '%s: %s is %r here, %r upstream', name, attribute, new, old
        )


def _check(name: str, values: dict[str, Any]) -> None:
  missing = [
      each for each in sorted(values) if not hasattr(upstream.GPTJ, each)
  ]
  if missing:
    raise AttributeError(
        f'{name} sets {", ".join(missing)}, which this Saxml does not have;'
        ' take it out of the params or another release of Saxml'
    )


def _serving_mesh_shape(cls) -> list[int]:
  """Axes replica, data_mdl2, mdl and, with DECODE_MESH_TRANSPOSE, fprop_*.

  The prefix then runs on the last two and decoding on the first ones, which
  are made of the same devices; upstream's sharding takes them in this order.
  """
  replica, data, model = cls.ICI_MESH_SHAPE
  if cls.DECODE_MESH_TRANSPOSE:
    return [replica, 1, 1, data, model]
  return [replica, data, model]


def _with_xla_flags(servable: type) -> type:
  if not hasattr(servable, 'compiler_options'):
    raise AttributeError(
        f'{servable.__name__} asks for compiler flags, but this Saxml has no'
        ' compiler_options to give them by; take another release of Saxml'
    )
  servable.XLA_TPU_FLAGS = dict(xla_flags.BATCH_32)
  servable.compiler_options = lambda self: dict(self.XLA_TPU_FLAGS)
  return servable


def _quantized(name: str, servable: type, quantized: str) -> type:
  if quantized == 'none':
    return servable
  if quantized == 'int8':
    return quantization.for_transformer(quantize_on_the_fly=False)(servable)
  raise ValueError(
      f"{name} has {_QUANTIZATION} = {quantized!r}; upstream serves 'none' and"
      " 'int8'"
  )


def _registrable(name: str, servable: type) -> type:
  given = servable_model_registry.full_registration_name(servable)
  if given != name:
    raise ValueError(
        f'this Saxml would register {name} as {given}; take a release that'
        ' asks sax_registration_name'
    )
  return servable
