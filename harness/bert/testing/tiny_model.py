"""A BERT of two small layers with random weights for tests."""

import os

from harness.bert import checkpoint
from harness.bert.testing import tiny_set

CONFIG = checkpoint.Config(
  vocab_size=len(tiny_set.VOCAB),
  hidden_size=32,
  num_hidden_layers=2,
  num_attention_heads=4,
  intermediate_size=64,
  max_position_embeddings=384,
)


def make() -> checkpoint.Checkpoint:
  """The model, with weights ten times those of a fresh BERT.

  So that its logits differ from token to token by more than rounding.
  """
  made = checkpoint.make_random(CONFIG, seed=0)
  tensors = {
    name: tensor if 'LayerNorm.weight' in name else tensor * 10
    for name, tensor in made.tensors.items()
  }
  return checkpoint.Checkpoint(CONFIG, tensors)


def write(directory: str) -> str:
  """Writes a Hugging Face directory and returns its path."""
  path = os.path.join(directory, 'model')
  checkpoint.save(make(), path)
  return path
