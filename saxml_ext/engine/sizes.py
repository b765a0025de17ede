"""Defines the sizes that determine the shapes of a model's variables."""

from typing import Protocol


class Sizes(Protocol):
  """The sizes of a model; `config.ModelConfig` has them, for example."""

  @property
  def num_layers(self) -> int:
    """The number of transformer layers."""

  @property
  def model_dim(self) -> int:
    """The size of a hidden state, D."""

  @property
  def num_heads(self) -> int:
    """The number of attention heads, N."""

  @property
  def kv_heads(self) -> int:
    """The number of heads of keys and values, a divisor of N."""

  @property
  def head_dim(self) -> int:
    """The size of a head, H."""

  @property
  def hidden_dim(self) -> int:
    """The size between the two matrices of a feed-forward layer, F."""

  @property
  def vocab_size(self) -> int:
    """The number of tokens in the embedding, V."""
