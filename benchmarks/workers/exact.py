"""Computes a model in float32, one layer at a time.

It is the reference for number formats if the float32 weights of a model do not
fit into memory. All sequences pass a layer before the next one is read.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.workers import streamed
from saxml_ext.engine import model
from saxml_ext.engine import rotary
from saxml_ext.engine import weights as weights_lib


def top1(
  stored: streamed.Stored,
  sequences: Sequence[Sequence[int]],
  starts: Sequence[int],
) -> list[list[int]]:
  """Returns the most likely token at each position of each sequence.

  Args:
    stored: The model.
    sequences: The token sequences.
    starts: The first position of each sequence, at least 1.

  Returns:
    One token per position of each sequence, beginning at its start.
  """
  config = stored.config
  reader = weights_lib.PaxReader(stored.variables, config, 'float32')
  tokens = np.zeros((len(sequences), max(map(len, sequences))), np.int32)
  for row, sequence in enumerate(sequences):
    tokens[row, : len(sequence)] = sequence
  rotations = rotary.table(
    tokens.shape[1],
    config.rotary_dim,
    config.rotary_base,
    config.rotary_scaling,
  )

  @jax.jit
  def run(layer: weights_lib.Layer, x: jax.Array, index: int) -> jax.Array:
    return model.run_layer(layer, config, x, rotations, index)[0]

  @jax.jit
  def likeliest(head: weights_lib.Weights, x: jax.Array) -> jax.Array:
    return model.logits(head, config, x).argmax(-1)

  embedding = jnp.asarray(reader.leaf('embedding'))
  x = embedding[jnp.asarray(tokens)]
  del embedding
  for index in range(config.num_layers):
    x = run(reader.layer(index), x, index).block_until_ready()
  outside = ('final_norm.scale', 'final_norm.bias', 'head', 'head_bias')
  leaves = {field: reader.leaf(field) for field in outside}
  head = weights_lib.assemble(leaves.get, ())
  result = []
  for row, (sequence, start) in enumerate(zip(sequences, starts)):
    # Logits are large, so the sequences are processed one at a time.
    best = likeliest(head, x[row])
    result.append(best[start - 1 : len(sequence) - 1].tolist())
  return result
