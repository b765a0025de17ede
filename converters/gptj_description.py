"""gptj_config.json: what a server must know of a model beside its weights.

The converter writes it beside `checkpoint_00000000`, with tokenizer.json if
the source has one. Sizes can be read off the variables' shapes; these cannot:

  {
    "rotary_dim": 64,            leading dimensions of each head that rotate
    "layer_norm_epsilon": 1e-05,
    "max_positions": 2048,       longest sequence the model was made for
    "bos_token_id": 50256,       null where the source has none
    "eos_token_id": 50256,
    "pad_token_id": 50256,       the EOS token where the source has none
    "num_layers": 28, "model_dim": 4096, "num_heads": 16, "head_dim": 256,
    "hidden_dim": 16384, "vocab_size": 50401,
    "dtype": "float32"           type of the variables
  }
"""

import json
import os

from converters import hf_config
from saxml_ext.common import storage
from saxml_ext.pax import layout

FILE_NAME = 'gptj_config.json'
# Copied unchanged from the source where it has them.
TOKENIZER_FILES = ('tokenizer.json', 'tokenizer_config.json')


def encode(
    config: hf_config.HFConfig, shape: layout.GPTJShape, dtype: str
) -> bytes:
  """Returns the bytes of gptj_config.json."""
  pad = config.pad_token_id
  description = {
      'rotary_dim': config.rotary_dim,
      'layer_norm_epsilon': config.layer_norm_epsilon,
      'max_positions': config.max_positions,
      'bos_token_id': config.bos_token_id,
      'eos_token_id': config.eos_token_id,
      'pad_token_id': config.eos_token_id if pad is None else pad,
      'num_layers': shape.num_layers,
      'model_dim': shape.model_dim,
      'num_heads': shape.num_heads,
      'head_dim': shape.head_dim,
      'hidden_dim': shape.hidden_dim,
      'vocab_size': shape.vocab_size,
      'dtype': dtype,
  }
  return (json.dumps(description, indent=2) + '\n').encode('ascii')


def write(
    directory: str,
    config: hf_config.HFConfig,
    shape: layout.GPTJShape,
    dtype: str,
    source: str,
) -> None:
  """Writes gptj_config.json and copies the tokenizer.

  Args:
    directory: where `checkpoint_00000000` is going to be, local or a URL.
    config: of the source.
    shape: sizes of the PAX model.
    dtype: name of the type of its variables.
    source: the Hugging Face directory.

  Raises:
    OSError, saxml_ext.common.errors.SaxError: a file cannot be read or written.
  """
  files = {FILE_NAME: encode(config, shape, dtype)}
  for name in TOKENIZER_FILES:
    path = os.path.join(source, name)
    if os.path.isfile(path):
      with open(path, 'rb') as f:
        files[name] = f.read()
  for name, data in files.items():
    storage.write_bytes(f'{directory}/{name}', data, sole_writer=True)
