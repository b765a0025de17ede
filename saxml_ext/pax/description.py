"""gptj_config.json: what a checkpoint says of its model beside the weights.

The converter writes it beside `checkpoint_00000000`, for sizes can be read off
the variables' shapes, but these things cannot:

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

Of a model that is no GPT-J the file also has "model_type", the name of its
family, and "rotary_base", the base of the wavelengths of rotary positions. A
model whose queries share keys has "num_kv_heads", and one whose answers may end
in one of several tokens has "stop_token_ids", a list.

A checkpoint of another converter has no such file; then the serving params must
say these things.
"""

import dataclasses
import os
import typing

import msgspec

from saxml_ext.common import errors
from saxml_ext.common import files
from saxml_ext.common import storage

FILE_NAME = 'gptj_config.json'

# Where the file's word for a field is another.
_KEYS = {
  'ln_epsilon': 'layer_norm_epsilon',
  'bos_id': 'bos_token_id',
  'eos_id': 'eos_token_id',
  'pad_id': 'pad_token_id',
  'family': 'model_type',
  'stop_ids': 'stop_token_ids',
}
# What the file leaves out, for it was written for GPT-J alone.
_UNSAID = {
  'family': 'gptj',
  'rotary_base': 10000.0,
  'num_kv_heads': None,
  'stop_ids': None,
}


@dataclasses.dataclass(frozen=True)
class Description:
  """The entries of the file; None where it says nothing.

  Attributes:
    rotary_dim: leading dimensions of each head that rotate.
    ln_epsilon: added to the variance in layer norms.
    max_positions: longest sequence the model was made for, in tokens.
    bos_id: the token that begins a text.
    eos_id: the token that ends a text.
    pad_id: the token that fills up a batch.
    num_layers, model_dim, num_heads, head_dim, hidden_dim, vocab_size: sizes,
      as of `engine.config.ModelConfig`.
    dtype: name of the type of the variables.
    family: The name of the family; None stands for GPT-J.
    rotary_base: The base of the wavelengths of rotary positions; None stands
      for 10,000.
    num_kv_heads: The number of heads of keys and values; None: num_heads.
    stop_ids: All tokens that end a text; None: eos_id alone.
  """

  rotary_dim: int | None = None
  ln_epsilon: float | None = None
  max_positions: int | None = None
  bos_id: int | None = None
  eos_id: int | None = None
  pad_id: int | None = None
  num_layers: int | None = None
  model_dim: int | None = None
  num_heads: int | None = None
  head_dim: int | None = None
  hidden_dim: int | None = None
  vocab_size: int | None = None
  dtype: str | None = None
  family: str | None = None
  rotary_base: float | None = None
  num_kv_heads: int | None = None
  stop_ids: list[int] | None = None

  def encode(self) -> bytes:
    """Returns the bytes of the file."""
    document = {
      _key(k): v
      for k, v in dataclasses.asdict(self).items()
      if k not in _UNSAID or v not in (None, _UNSAID[k])
    }
    return files.encode_json(document).encode('ascii')


def write(directory: str, description: Description) -> None:
  """Writes the file.

  Args:
    directory: where `checkpoint_00000000` is, local or a URL.
    description: what to write.

  Raises:
    OSError, errors.SaxError: the file system or the bucket refuses.
  """
  path = os.path.join(directory, FILE_NAME)
  storage.write_bytes(path, description.encode(), sole_writer=True)


def read(checkpoint_path: str, above: bool = True) -> Description:
  """Reads the file in the checkpoint's directory or in the one above.

  Args:
    checkpoint_path: of the checkpoint.
    above: whether to look into the directory above.

  Returns:
    What it says; nothing if there is none.

  Raises:
    errors.InvalidArgument: the file is malformed.
  """
  base = checkpoint_path.rstrip('/')
  for directory in (base, os.path.dirname(base))[: 1 + above]:
    path = os.path.join(directory, FILE_NAME)
    if storage.is_file(path):
      return _parse(path)
  return Description()


def _parse(path: str) -> Description:
  try:
    document = msgspec.json.decode(storage.read_bytes(path), type=dict)
  except (OSError, ValueError, RecursionError) as e:
    raise errors.InvalidArgument(
      f'{path} cannot be read: {e}; convert the checkpoint again'
    ) from e
  values = {}
  for name, kind in typing.get_type_hints(Description).items():
    value = document.get(_key(name))
    try:
      values[name] = msgspec.convert(value, kind)
    except msgspec.ValidationError as e:
      raise errors.InvalidArgument(
        f'{path}: {_key(name)} is {value!r}. {e}; convert the checkpoint again'
      ) from e
  return Description(**values)


def _key(field: str) -> str:
  return _KEYS.get(field, field)
