"""A stand-in for upstream's GPT-J with all of its known classes.

Its task records the values from which upstream would build a Pax task.
"""

import dataclasses
from typing import Any

from jax import numpy as jnp
from saxml.server import servable_model_registry
from saxml.server.pax import quantization
from saxml.server.pax.lm.params import template
import saxml_release

from saxml_ext.params.testing import upstream_facts

_FACTS = upstream_facts.load(saxml_release.NAME)


@dataclasses.dataclass(frozen=True)
class Task:
  """The configuration of a Pax task.

  Attributes:
    sizes: The values of num_layers, model_dims, hidden_dims, num_heads,
      dim_per_head and vocab_size.
    dtypes: The types of parameters and of activations.
    mesh_shape: The mesh of the devices.
    transposed: True if decoding uses another mesh than the prefix.
    batch_sharding: True if activations are split along the batch.
    quantization: The arguments of the decorator; None without it.
  """

  sizes: tuple[int, ...]
  dtypes: tuple[Any, Any]
  mesh_shape: tuple[int, ...] = ()
  transposed: bool = False
  batch_sharding: bool = False
  quantization: dict[str, Any] | None = None


class Experiment:
  """The base class of the experiments."""

  def task(self) -> Task:
    sizes = (
      self.NUM_LAYERS,
      self.MODEL_DIMS,
      self.HIDDEN_DIMS,
      self.NUM_HEADS,
      self.DIMS_PER_HEAD,
      self.VOCAB_SIZE,
    )
    sharding = {}
    if hasattr(self, 'USE_BATCH_SHARDING'):  # Since mlperf4.0.
      sharding['use_batch_sharding'] = self.USE_BATCH_SHARDING
    return template.set_decoding_sharding_hparams(
      Task(sizes=sizes, dtypes=(self.MODEL_DTYPE, self.FPROP_DTYPE)),
      mesh_shape=self.ICI_MESH_SHAPE,
      decode_mesh_transpose=self.DECODE_MESH_TRANSPOSE,
      **sharding,
    )


def _define(name: str, facts: upstream_facts.Class, quantizes: bool) -> type:
  body = {
    attribute: getattr(jnp, value) if attribute.endswith('_DTYPE') else value
    for attribute, value in facts.changes.items()
  }
  body['__module__'] = __name__
  if 'XLA_TPU_FLAGS' in body and facts.base is None:
    body['compiler_options'] = lambda self: {
      **_FACTS.compiler_options,
      **self.XLA_TPU_FLAGS,
    }
  if body.get('DECODE_MESH_TRANSPOSE'):
    body['serving_mesh_shape'] = classmethod(
      lambda cls: [1, 1, 1, *cls.ICI_MESH_SHAPE[1:]]
    )
  if facts.base is None:
    return template.make_servable()(type(name, (Experiment,), body))
  base = globals()[facts.base]
  defined = type(base)(name, (base,), body)
  if not quantizes:
    return defined
  return quantization.for_transformer(quantize_on_the_fly=False)(defined)


for _name, _facts in _FACTS.classes.items():
  _begins = _facts.quantized and not _FACTS.classes[_facts.base].quantized
  globals()[_name] = servable_model_registry.register(
    _define(_name, _facts, _begins)
  )
