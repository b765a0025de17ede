"""A random two-layer GPT-J for tests: its checkpoint and serving params."""

import numpy as np

from saxml_ext.families import hf_config
from saxml_ext.families import layout
from saxml_ext.params import gptj
from saxml_ext.params import registry
from saxml_ext.pax import description
from saxml_ext.pax.testing import checkpoints

MODEL_PATH = 'saxml_ext.server.testing.small_model.Small'
SHAPE = hf_config.HFConfig(
  num_layers=2, model_dim=32, num_heads=2, hidden_dim=64, vocab_size=50
)
EOS_ID = 49


@registry.register(MODEL_PATH)
class Small(gptj.TinyTokenizedFP32):
  """Serving params with few and small programs, which compile in seconds."""

  BATCH_SIZE = 2
  MAX_LIVE_BATCHES = 8
  INPUT_SEQ_LEN = 16
  BUCKET_KEYS = [16]
  MIN_DECODE_STEPS = 2
  MAX_DECODE_STEPS = 8
  BEAM_SIZE = 2
  EXTRA_INPUTS = {'per_example_max_decode_steps': 8}


def write(
  directory: str,
  *,
  describe: bool = True,
  seed: int = 0,
  shape: hf_config.HFConfig = SHAPE,
) -> str:
  """Writes a checkpoint with random weights; returns `directory`.

  Args:
    directory: The directory to write to, a path or a URL.
    describe: True if gptj_config.json is also written.
    seed: The seed of the weights.
    shape: The sizes of the model.
  """
  rng = np.random.default_rng(seed)
  checkpoints.write_checkpoint(
    directory,
    ((v.name, _value(v.name, v.shape, rng)) for v in layout.variables(shape)),
  )
  if describe:
    metadata = description.Description(
      rotary_dim=8, eos_id=EOS_ID, max_positions=64
    )
    description.write(directory, metadata)
  return directory


def _value(
  name: str, shape: tuple[int, ...], rng: np.random.Generator
) -> np.ndarray:
  if name.endswith('.scale'):
    return np.ones(shape, np.float32)
  # With large weights and without biases, answers depend on the prompt.
  factor = 0.0 if '.bias' in name else 0.5
  return (rng.normal(size=shape) * factor).astype(np.float32)
