"""Computes GPT-J's forward pass in NumPy from PAX variables, for tests.

The code is optimized for reading, not for speed. It shows the meaning of each
variable.
"""

from collections.abc import Mapping

import numpy as np


def logits(
  variables: Mapping[str, np.ndarray],
  tokens: np.ndarray,
  rotary_dim: int,
  epsilon: float = 1e-5,
) -> np.ndarray:
  """Returns logits [T, V] in float64 for tokens [T].

  Args:
    variables: The PAX variables by name, without `mdl_vars.`.
    tokens: The token ids.
    rotary_dim: The number of leading dimensions of each head that rotate.
    epsilon: The epsilon of the layer norms.
  """
  lm = {
    name.removeprefix('params.lm.'): value.astype(np.float64)
    for name, value in variables.items()
  }
  x = lm['embedding_lookup.emb_var'][tokens]
  index = 0
  while f'transformer.x_layers_{index}.layer_norm.scale' in lm:
    prefix = f'transformer.x_layers_{index}.'
    layer = {
      name.removeprefix(prefix): value
      for name, value in lm.items()
      if name.startswith(prefix)
    }
    normed = _layer_norm(
      x, layer['layer_norm.scale'], layer['layer_norm.bias'], epsilon
    )
    x = x + _attention(layer, normed, rotary_dim) + _feed_forward(layer, normed)
    index += 1
  x = _layer_norm(x, lm['final_ln.scale'], lm['final_ln.bias'], epsilon)
  return x @ lm['softmax.logits_ffn.linear.w'] + lm['softmax.logits_ffn.bias.b']


def _layer_norm(x, scale, bias, epsilon):
  centred = x - x.mean(-1, keepdims=True)
  variance = np.square(centred).mean(-1, keepdims=True)
  return centred / np.sqrt(variance + epsilon) * scale + bias


def _attention(layer, x, rotary_dim):
  """Applies causal self-attention, [T, D] to [T, D]."""
  q, k, v = np.einsum(
    'td,cdnh->ctnh', x, layer['self_attention.combined_qkv.w']
  )
  q, k = _rotate(q, rotary_dim), _rotate(k, rotary_dim)
  scores = np.einsum('tnh,snh->nts', q, k) / np.sqrt(q.shape[-1])
  future = np.triu(np.ones(scores.shape[1:], bool), 1)
  scores = np.where(future, -np.inf, scores)
  weights = np.exp(scores - scores.max(-1, keepdims=True))
  weights /= weights.sum(-1, keepdims=True)
  heads = np.einsum('nts,snh->tnh', weights, v)
  return np.einsum('tnh,dnh->td', heads, layer['self_attention.post.w'])


def _rotate(x, rotary_dim):
  """Rotates pairs (0, 1), (2, 3), ... of the leading dimensions of a head."""
  angles = np.outer(
    np.arange(x.shape[0]),
    10000.0 ** (-np.arange(0, rotary_dim, 2) / rotary_dim),
  )
  turn = np.exp(1j * angles)[:, None, :]
  pairs = (x[..., 0:rotary_dim:2] + 1j * x[..., 1:rotary_dim:2]) * turn
  rotated = x.copy()
  rotated[..., 0:rotary_dim:2] = pairs.real
  rotated[..., 1:rotary_dim:2] = pairs.imag
  return rotated


def _feed_forward(layer, x):
  hidden = (
    x @ layer['ff_layer.ffn_layer1.linear.w']
    + layer['ff_layer.ffn_layer1.bias.b']
  )
  cubic = hidden + 0.044715 * hidden**3
  hidden = 0.5 * hidden * (1 + np.tanh(np.sqrt(2 / np.pi) * cubic))
  return (
    hidden @ layer['ff_layer.ffn_layer2.linear.w']
    + layer['ff_layer.ffn_layer2.bias.b']
  )
