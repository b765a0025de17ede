"""What a model says in float32, computed with one of its layers at a time.

It is the yardstick of number formats for models whose float32 weights do not
fit into memory: all sequences go through a layer before the next one is read.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.workers import streamed
from saxml_ext.engine import model
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.attention import rotary


def top1(
  stored: streamed.GPTJ,
  sequences: Sequence[Sequence[int]],
  starts: Sequence[int],
) -> list[list[int]]:
  """The likeliest token at each place of each sequence, the past given.

  Args:
    stored: the model.
    sequences: of tokens.
    starts: the first place asked for, at least 1, of each sequence.

  Returns:
    For each sequence one token for each of its places from its start on.
  """
  config = stored.config
  reader = weights_lib.PaxReader(stored.variables, config, 'float32')
  tokens = np.zeros((len(sequences), max(map(len, sequences))), np.int32)
  for row, sequence in enumerate(sequences):
    tokens[row, : len(sequence)] = sequence
  rotations = rotary.table(
    tokens.shape[1], config.rotary_dim, config.rotary_base
  )

  @jax.jit
  def run(layer: weights_lib.Layer, x: jax.Array) -> jax.Array:
    return model.run_layer(layer, config, x, rotations)[0]

  @jax.jit
  def likeliest(head: weights_lib.Weights, x: jax.Array) -> jax.Array:
    return model.logits(head, config, x).argmax(-1)

  embedding = jnp.asarray(reader.leaf('embedding'))
  x = embedding[jnp.asarray(tokens)]
  del embedding
  for index in range(config.num_layers):
    x = run(reader.layer(index), x).block_until_ready()
  outside = ('final_norm.scale', 'final_norm.bias', 'head', 'head_bias')
  leaves = {field: reader.leaf(field) for field in outside}
  head = weights_lib.assemble(leaves.get, ())
  result = []
  for row, (sequence, start) in enumerate(zip(sequences, starts)):
    # One at a time: logits are many.
    best = likeliest(head, x[row])
    result.append(best[start - 1 : len(sequence) - 1].tolist())
  return result
