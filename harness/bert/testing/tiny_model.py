"""Makes a BERT with two small layers and random weights for tests."""

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
  """Returns the model, with ten times the weights of a newly initialized BERT.

  With larger weights, the logits of different tokens differ by more than
  rounding errors.
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
