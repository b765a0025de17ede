"""Handles the Hugging Face directory that every engine loads."""

import dataclasses
import glob
import json
import os

# The bytes of a value. llama.cpp stores 32 values with a scale of two bytes, and
# our int4 also with a minimum.
BYTES = {
  'float32': 4.0,
  'bfloat16': 2.0,
  'float16': 2.0,
  'int8': 1.0,
  'int4': 20 / 32,
  'q8_0': 34 / 32,
  'q4_0': 18 / 32,
}


@dataclasses.dataclass(frozen=True)
class Sizes:
  """The sizes of a model that determine its weights, see `config.ModelConfig`.

  Attributes:
    kv_dim: The width of the keys of all heads; 0 means dim.
    gated: True if the feed-forward layer has a third matrix, the gate.
    tied: True if the head is the embedding.
  """

  layers: int
  dim: int
  hidden: int
  vocab: int
  kv_dim: int = 0
  gated: bool = False
  tied: bool = False

  @property
  def key_dim(self) -> int:
    return self.kv_dim or self.dim

  @property
  def layer_weights(self) -> int:
    """The number of weights in the matrices of all layers."""
    attention = 2 * self.dim * (self.dim + self.key_dim)
    return self.layers * (
      attention + (3 if self.gated else 2) * self.dim * self.hidden
    )

  @property
  def head_weights(self) -> int:
    return self.dim * self.vocab


def derived(cache: str, model: str, name: str) -> str:
  """Returns the path for files that an engine derives from `model`.

  The name depends on the size and the modification time of the weights. Other
  weights therefore get another path.

  Returns:
    A path in `cache`, which may not exist yet.
  """
  files = glob.glob(os.path.join(glob.escape(model), '*.safetensors'))
  weights = [os.stat(file) for file in files]
  size = sum(w.st_size for w in weights)
  latest = int(max(w.st_mtime for w in weights))
  base = os.path.basename(os.path.normpath(model))
  return os.path.join(cache, f'{base}-{size}-{latest}-{name}')


def read_config(model: str) -> dict:
  """Returns the config.json of the model."""
  with open(os.path.join(model, 'config.json'), encoding='utf-8') as file:
    return json.load(file)
