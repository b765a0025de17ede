"""Describes the differences between the dense decoders that the engine runs.

The engine has one model, whose code reads these switches. Sizes are in
`config.py`. The variables of a checkpoint follow from the switches too; see
`variables.py`. A switch changes a formula within a layer. A feature that
changes the state, such as a sliding window, would require its own code.
"""

import dataclasses

ROTARY, SINUSOIDAL = 'rotary', 'sinusoidal'
SHARED, PARALLEL, SEQUENTIAL = 'shared', 'parallel', 'sequential'
GELU_TANH, GELU = 'gelu_tanh', 'gelu'
QKV, POST, FEED_FORWARD = 'qkv', 'post', 'feed_forward'
_CHOICES = {
  'residual': (SHARED, PARALLEL, SEQUENTIAL),
  'activation': (GELU_TANH, GELU),
  'positions': (ROTARY, SINUSOIDAL),
}
BIASES = (QKV, POST, FEED_FORWARD)


@dataclasses.dataclass(frozen=True)
class Architecture:
  """Static switches of a model family; the defaults are those of GPT-J.

  Attributes:
    residual: The way in which attention and feed-forward join the residual.
      "shared": both read the same layer norm, and their results are added
      together. "parallel": their results are added together, and each has its
      own layer norm. "sequential": the feed-forward follows attention, with its
      own layer norm.
    activation: The activation of the feed-forward. "gelu_tanh" is the
      approximation by tanh, "gelu" the exact function.
    biases: The products that have a bias: "qkv", "post", "feed_forward" (both
      matrices). The head always has one, which may be zeros.
    positions: The encoding of positions. "rotary" rotates queries and keys;
      "sinusoidal" adds sines and cosines of the position to the embedding.
    interleaved: True if rotary positions rotate neighbors (0, 1), (2, 3), ...
      in the checkpoint; False if they rotate the two halves of the dimensions.
    joined_qkv: True if queries, keys and values are one variable of a PAX
      checkpoint; False if they are three, as grouped queries require.
    scaled_embedding: True if embeddings are multiplied by sqrt(width).
    tied_head: True if the head is the embedding.
    query_scale: True if queries have a learned scale for each dimension of a
      head, praxis' `per_dim_scale`.
    attention_cap: The cap c of attention scores, which become c * tanh(score /
      c). None does not cap them.
    logit_cap: The cap of logits, with the same formula.
  """

  residual: str = SHARED
  activation: str = GELU_TANH
  biases: tuple[str, ...] = (FEED_FORWARD,)
  positions: str = ROTARY
  interleaved: bool = True
  joined_qkv: bool = True
  scaled_embedding: bool = False
  tied_head: bool = False
  query_scale: bool = False
  attention_cap: float | None = None
  logit_cap: float | None = None

  def __post_init__(self) -> None:
    for name, choices in _CHOICES.items():
      if getattr(self, name) not in choices:
        raise ValueError(
          f'{name} is {getattr(self, name)!r}, but must be one of {choices}.'
        )
    if self.biases != tuple(name for name in BIASES if name in self.biases):
      raise ValueError(
        f'biases is {self.biases}. Use any of {BIASES}, in this order.'
      )
    for name in ('attention_cap', 'logit_cap'):
      cap = getattr(self, name)
      if cap is not None and not cap > 0:
        raise ValueError(f'{name} is {cap}, but must be above 0 or None.')


GPTJ = Architecture()

# The architecture of paxml's LmCloudSpmd experiments
# (paxml/tasks/lm/params/lm_cloud.py). It has the defaults of
# TransformerLmSpmdAdafactor and of praxis that these experiments do not change.
LM_CLOUD = Architecture(
  residual=SEQUENTIAL,
  positions=SINUSOIDAL,
  scaled_embedding=True,
  tied_head=True,
  query_scale=True,
  attention_cap=50.0,
  logit_cap=30.0,
)
