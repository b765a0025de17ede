"""Converts our serving params to classes for upstream's model server.

Such a class derives from upstream's own GPT-J. So it has upstream's Pax
experiment and serving template. It also gets the attributes that our params
set. An attribute that upstream lacks is an error, because it would have no
effect. Two attributes of the branch mlperf4.0 also work in older releases.
"""

from collections.abc import Callable
import types
from typing import Any

from jax import numpy as jnp
from saxml.server import servable_model_registry  # type: ignore[attr-defined]
from saxml.server.pax import quantization
from saxml.server.pax.lm.params import gptj as upstream
from saxml.server.pax.lm.params import template as upstream_template

from saxml_ext.families import gptj_published
from saxml_ext.params import template

# Our values are names, and upstream's are types.
_DTYPES = ('MODEL_DTYPE', 'FPROP_DTYPE')
# This is an attribute in our params, and a class decorator in upstream's.
_QUANTIZATION = 'QUANTIZATION'
# For both of our values, upstream quantizes only the weights.
_QUANTIZED = ('int8', 'int8_weights')


def from_params(name: str, params: type[template.ServableLMParams]) -> type:
  """Returns a class with the attributes of `params` for upstream's registry.

  It is compiled with the flags of the branch mlperf4.0 and those in
  XLA_TPU_FLAGS. With QUANTIZATION, it serves a checkpoint that is already int8.

  Args:
    name: The dotted name under which it is registered.
    params: The serving params.

  Returns:
    A subclass of upstream's `GPTJ`.

  Raises:
    AttributeError: Upstream has no such attribute, or cannot pass flags to the
      compiler.
    ValueError: Upstream's server does not support the value of an attribute, or
      would not register the class under `name`.
  """
  values = attributes(params)
  quantized = values.pop(_QUANTIZATION, 'none')
  for attribute in _DTYPES:
    if attribute in values:
      values[attribute] = getattr(jnp, values[attribute])
  added = _added()
  _check(name, values, added)
  body = {
    '__doc__': params.__doc__,
    '__module__': __name__,
    'sax_registration_name': classmethod(lambda cls: name),
    'serving_mesh_shape': classmethod(_serving_mesh_shape),
    **{attribute: getattr(params, attribute) for attribute in added},
    **dict(added.values()),
    **values,
  }
  # Unlike type(), this uses the metaclass of upstream's class.
  servable = types.new_class(
    name.rpartition('.')[2],
    (upstream.GPTJ,),
    exec_body=lambda space: space.update(body),
  )
  return _registrable(name, _quantized(name, servable, quantized))


def attributes(params: type[template.ServableLMParams]) -> dict[str, Any]:
  """Returns the attributes of `params` and its bases, except the template's."""
  values = {}
  for base in reversed(params.__mro__):
    if issubclass(base, template.ServableLMParams):
      if base is not template.ServableLMParams:
        values.update({k: v for k, v in vars(base).items() if k.isupper()})
  return values


def _added() -> dict[str, tuple[str, Callable[[Any], Any]]]:
  """Returns the methods that implement attributes which this Saxml lacks.

  The keys are the attributes. The values are the name and the method.
  """
  methods = {
    'USE_BATCH_SHARDING': ('task', _task),
    'XLA_TPU_FLAGS': ('compiler_options', _compiler_options),
  }
  return {k: v for k, v in methods.items() if not hasattr(upstream.GPTJ, k)}


def _task(self) -> Any:
  return upstream_template.set_decoding_sharding_hparams(
    upstream.GPTJ.task(self),
    mesh_shape=self.ICI_MESH_SHAPE,
    decode_mesh_transpose=self.DECODE_MESH_TRANSPOSE,
    use_batch_sharding=self.USE_BATCH_SHARDING,
  )


def _compiler_options(self) -> dict[str, str]:
  return {**gptj_published.XLA_FLAGS, **self.XLA_TPU_FLAGS}


def _check(name: str, values: dict[str, Any], added: dict[str, Any]) -> None:
  missing = [
    key
    for key in sorted(values)
    if key not in added and not hasattr(upstream.GPTJ, key)
  ]
  if missing:
    raise AttributeError(
      f'{name} sets {", ".join(missing)}, which this Saxml does not have.'
      ' Remove it from the params, or use another release of Saxml.'
    )
  if not hasattr(upstream.GPTJ, 'compiler_options'):
    raise AttributeError(
      f'{name} sets compiler flags, but this Saxml has no compiler_options.'
      ' Use another release of Saxml.'
    )


def _serving_mesh_shape(cls) -> list[int]:
  """Returns the sizes of the mesh axes replica, data_mdl2 and mdl.

  DECODE_MESH_TRANSPOSE adds the axes fprop_*. The prefix then runs on the last
  two axes and decoding on the first ones. Both are made of the same devices.
  Upstream's sharding expects this order.
  """
  replica, data, model = cls.ICI_MESH_SHAPE
  if cls.DECODE_MESH_TRANSPOSE:
    return [replica, 1, 1, data, model]
  return [replica, data, model]


def _quantized(name: str, servable: type, quantized: str) -> type:
  if quantized == 'none':
    return servable
  if quantized in _QUANTIZED:
    return quantization.for_transformer(quantize_on_the_fly=False)(servable)
  raise ValueError(
    f"{name} has {_QUANTIZATION} = {quantized!r}. Upstream supports 'none' and,"
    f' for the weights only, {" and ".join(map(repr, _QUANTIZED))}.'
  )


def _registrable(name: str, servable: type) -> type:
  given = servable_model_registry.full_registration_name(servable)
  if given != name:
    raise ValueError(
      f'this Saxml would register {name} as {given}. Use a release that calls'
      ' sax_registration_name.'
    )
  return servable
