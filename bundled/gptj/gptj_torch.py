"""Implements GPT-J in PyTorch for training, with fused attention.

`transformers.GPTJForCausalLM` computes attention without a fused kernel, so
training on a CPU takes several times longer. The weights have transformers'
names. After the training, they are saved in its format and loaded by it.
`gptj_torch_test.py` checks that both compute the same logits.
"""

import torch
from torch import nn
from torch.nn import functional as F
import transformers


class Block(nn.Module):
  """A block with attention and MLP in parallel after one layer norm."""

  def __init__(self, config: transformers.GPTJConfig):
    super().__init__()
    dim = config.n_embd
    self.heads = config.n_head
    self.rotary_dim = config.rotary_dim
    self.ln_1 = nn.LayerNorm(dim, eps=config.layer_norm_epsilon)
    self.attn = nn.ModuleDict(
      {
        name: nn.Linear(dim, dim, bias=False)
        for name in ('q_proj', 'k_proj', 'v_proj', 'out_proj')
      }
    )
    self.mlp = nn.ModuleDict(
      {'fc_in': nn.Linear(dim, 4 * dim), 'fc_out': nn.Linear(4 * dim, dim)}
    )

  def forward(self, x, cos, sin):
    """Runs the block on x [B, T, D]; cos and sin are [T, rotary_dim / 2]."""
    batch, length, dim = x.shape
    y = self.ln_1(x)

    def heads(name):
      split = self.attn[name](y).view(batch, length, self.heads, -1)
      return split.transpose(1, 2)

    q = self._rotate(heads('q_proj'), cos, sin)
    k = self._rotate(heads('k_proj'), cos, sin)
    mixed = F.scaled_dot_product_attention(
      q, k, heads('v_proj'), is_causal=True
    )
    mixed = mixed.transpose(1, 2).reshape(batch, length, dim)
    hidden = F.gelu(self.mlp['fc_in'](y), approximate='tanh')
    return x + self.attn['out_proj'](mixed) + self.mlp['fc_out'](hidden)

  def _rotate(self, x, cos, sin):
    """Rotates pairs (2i, 2i + 1) of the first rotary_dim dimensions."""
    turned, rest = x.split([self.rotary_dim, x.shape[-1] - self.rotary_dim], -1)
    even, odd = turned[..., 0::2], turned[..., 1::2]
    turned = torch.stack((even * cos - odd * sin, odd * cos + even * sin), -1)
    return torch.cat((turned.flatten(-2), rest), -1).to(x.dtype)


class GPTJ(nn.Module):
  """The language model; `state_dict` has transformers' names."""

  def __init__(self, config: transformers.GPTJConfig):
    super().__init__()
    self.config = config
    self.transformer = nn.ModuleDict(
      {
        'wte': nn.Embedding(config.vocab_size, config.n_embd),
        'h': nn.ModuleList(Block(config) for _ in range(config.n_layer)),
        'ln_f': nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon),
      }
    )
    self.lm_head = nn.Linear(config.n_embd, config.vocab_size)
    half = torch.arange(0, config.rotary_dim, 2).float() / config.rotary_dim
    angle = torch.outer(
      torch.arange(config.n_positions).float(), 10_000.0**-half
    )
    self.register_buffer('cos', angle.cos(), persistent=False)
    self.register_buffer('sin', angle.sin(), persistent=False)
    for name, weight in self.named_parameters():
      if weight.dim() == 2:
        # Residual branches start small, so that depth does not add variance.
        last = name.endswith(('out_proj.weight', 'fc_out.weight'))
        depth = (2 * config.n_layer) ** -0.5 if last else 1.0
        nn.init.normal_(weight, std=0.02 * depth)
    # Both begin with equal values and are trained separately. At the start, the
    # head can thus already map a word that is copied from the article to
    # itself.
    self.lm_head.weight.data.copy_(self.transformer['wte'].weight.data)

  def hidden(self, ids):
    """Returns the final hidden states [B, T, D] of ids [B, T]."""
    length = ids.shape[1]
    x = self.transformer['wte'](ids)
    for block in self.transformer['h']:
      x = block(x, self.cos[:length], self.sin[:length])
    return self.transformer['ln_f'](x)

  def forward(self, ids):
    """Returns the logits [B, T, V] of ids [B, T]."""
    return self.lm_head(self.hidden(ids))


def bundled_config() -> transformers.GPTJConfig:
  """Returns the shape of the bundled model: 5.3 million parameters."""
  end = 4095  # The id of tokenizer.END_OF_TEXT.
  return transformers.GPTJConfig(
    vocab_size=4096,
    n_positions=1024,
    n_embd=256,
    n_layer=4,
    n_head=4,
    rotary_dim=32,
    bos_token_id=end,
    eos_token_id=end,
    pad_token_id=end,
    resid_pdrop=0.0,
    embd_pdrop=0.0,
    attn_pdrop=0.0,
    tie_word_embeddings=False,
  )
