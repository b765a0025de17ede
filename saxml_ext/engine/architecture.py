"""Describes the differences between the dense decoders that the engine runs.

The engine has one model, whose code reads these switches. Sizes are in
`config.py`. The variables of a checkpoint follow from the switches too; see
`variables.py`. A switch changes a formula within a layer. A feature that
changes the state, such as a sliding window, would require its own code.
"""

import dataclasses

ROTARY, SINUSOIDAL = 'rotary', 'sinusoidal'
SHARED, PARALLEL, SEQUENTIAL = 'shared', 'parallel', 'sequential'
GELU_TANH, GELU, SILU = 'gelu_tanh', 'gelu', 'silu'
LAYER_NORM, RMS_NORM = 'layer', 'rms'
PRE, AFTER = 'pre', 'post'
PER_HEAD, ALL = 'each', 'all'
QKV, POST, FEED_FORWARD, HEAD = 'qkv', 'post', 'feed_forward', 'head'
_CHOICES = {
  'residual': (SHARED, PARALLEL, SEQUENTIAL),
  'activation': (GELU_TANH, GELU, SILU),
  'norm': (LAYER_NORM, RMS_NORM),
  'norm_policy': (PRE, AFTER),
  'qk_norm': (None, PER_HEAD, ALL),
  'positions': (ROTARY, SINUSOIDAL),
}
BIASES = (QKV, POST, FEED_FORWARD, HEAD)


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
      approximation by tanh, "gelu" the exact function. "silu" is x *
      sigmoid(x).
    gated: True if the feed-forward multiplies the activation of one matrix by
      the product of another; False if it has one matrix.
    norm: The norms. "layer" is a layer norm with scale and bias. "rms" divides
      by the root mean square and has only a scale.
    norm_policy: "pre" if attention and feed-forward read the result of a norm;
      "post" if a norm follows each, before their result joins the residual.
    qk_norm: The RMS norms of queries and keys before they are rotated. "each"
      normalizes each head, "all" all heads of a token together. None has none.
    biases: The products that have a bias: "qkv", "post", "feed_forward" (its
      matrices), "head". A family without a bias may have zeros instead.
    positions: The encoding of positions. "rotary" rotates queries and keys;
      "sinusoidal" adds sines and cosines of the position to the embedding.
    interleaved: True if rotary positions rotate neighbors (0, 1), (2, 3), ...
      in the checkpoint; False if they rotate the two halves of the dimensions.
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
  gated: bool = False
  norm: str = LAYER_NORM
  norm_policy: str = PRE
  qk_norm: str | None = None
  biases: tuple[str, ...] = (FEED_FORWARD, HEAD)
  positions: str = ROTARY
  interleaved: bool = True
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
    if self.norm_policy == AFTER and self.residual != SEQUENTIAL:
      raise ValueError(
        f'norm_policy is {AFTER!r}, but residual is {self.residual!r}, not'
        f' {SEQUENTIAL!r}.'
      )
    for name in ('attention_cap', 'logit_cap'):
      cap = getattr(self, name)
      if cap is not None and not cap > 0:
        raise ValueError(f'{name} is {cap}, but must be above 0 or None.')


@dataclasses.dataclass(frozen=True)
class Details:
  """The numbers of a model that few families have; the defaults change nothing.

  Attributes:
    embedding: The factor of embeddings.
    residual: The factor of what attention and feed-forward add to the residual.
    attention: The factor of scores; None stands for 1 / sqrt(head_dim).
    logits_divisor: The divisor of logits.
    unrotated: The indices of the layers without rotary positions.
  """

  embedding: float = 1.0
  residual: float = 1.0
  attention: float | None = None
  logits_divisor: float = 1.0
  unrotated: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class RotaryScaling:
  """The scaling of frequencies by which Llama 3.1 reads longer texts.

  Short wavelengths stay, and long ones are multiplied by `factor`. Those in
  between are interpolated. The formula is transformers' rope_type "llama3".
  For other formulas, `divisors` has the results.

  Attributes:
    factor: The factor of long wavelengths.
    low_freq_factor: Wavelengths above original_length / low_freq_factor are
      long.
    high_freq_factor: Wavelengths below original_length / high_freq_factor are
      short.
    original_length: The maximum number of tokens before the extension.
    divisors: The divisor of each pair's frequency, in place of the formula.
      Empty stands for the formula.
    gain: The factor of all sines and cosines.
  """

  factor: float
  low_freq_factor: float
  high_freq_factor: float
  original_length: int
  divisors: tuple[float, ...] = ()
  gain: float = 1.0

  def __post_init__(self) -> None:
    if not (
      self.factor >= 1
      and 0 < self.low_freq_factor < self.high_freq_factor
      and self.original_length > 0
      and self.gain > 0
      and min(self.divisors, default=1) > 0
    ):
      raise ValueError(
        f'{self} is not usable. The factor must be at least 1, low_freq_factor'
        ' must be below high_freq_factor, and all must be positive.'
      )


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
