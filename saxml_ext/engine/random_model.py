"""Random GPT-J variables under their PAX names, for tests and benchmarks."""

import numpy as np

from saxml_ext.engine import config as config_lib


def variables(
    config: config_lib.GPTJConfig, seed: int = 0, scale: float = 1.0
) -> dict[str, np.ndarray]:
  """Every variable of a model, float32.

  Args:
    config: sizes.
    seed: of the generator.
    scale: multiplies the head's weights; larger makes surer predictions.
  """
  rng = np.random.default_rng(seed)
  c = config
  d, n, h, f = c.model_dim, c.num_heads, c.head_dim, c.hidden_dim

  def draw(*shape: int, fan_in: int) -> np.ndarray:
    return rng.normal(0, fan_in**-0.5, shape).astype(np.float32)

  def vector(size: int, mean: float) -> np.ndarray:
    return rng.normal(mean, 0.1, size).astype(np.float32)

  lm = "params.lm"
  one = 1.0 if c.ln_direct_scale else 0.0
  result = {
      f"{lm}.embedding_lookup.emb_var": draw(c.vocab_size, d, fan_in=1),
      f"{lm}.final_ln.scale": vector(d, one),
      f"{lm}.final_ln.bias": vector(d, 0),
      f"{lm}.softmax.logits_ffn.linear.w": (
          scale * draw(d, c.vocab_size, fan_in=d)
      ),
      f"{lm}.softmax.logits_ffn.bias.b": vector(c.vocab_size, 0),
  }
  for i in range(c.num_layers):
    x = f"{lm}.transformer.x_layers_{i}"
    ffn = f"{x}.ff_layer.ffn_layer"
    result |= {
        f"{x}.layer_norm.scale": vector(d, one),
        f"{x}.layer_norm.bias": vector(d, 0),
        f"{x}.self_attention.combined_qkv.w": draw(3, d, n, h, fan_in=d),
        f"{x}.self_attention.post.w": draw(d, n, h, fan_in=d),
        f"{ffn}1.linear.w": draw(d, f, fan_in=d),
        f"{ffn}1.bias.b": vector(f, 0),
        f"{ffn}2.linear.w": draw(f, d, fan_in=f),
        f"{ffn}2.bias.b": vector(d, 0),
    }
  return result
