"""A stand-in for upstream's decorators that quantize a class's Pax task.

Upstream's decorators change the praxis task that the class builds. These record
their arguments in the stand-in's task. The parameters are upstream's.
"""

import dataclasses
import functools


def for_transformer(
  quantize_on_the_fly=True,
  num_bits=8,
  linear_only=False,
  use_symmetric=True,
  quantize_embedding_softmax=False,
):
  arguments = dict(locals())

  def decorate(cls):
    @functools.wraps(cls, updated=())
    class Quantized(cls):
      def task(self):
        return dataclasses.replace(super().task(), quantization=arguments)

    return Quantized

  return decorate
