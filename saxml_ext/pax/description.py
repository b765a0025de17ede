"""Reads and writes gptj_config.json, the description of a checkpoint's model.

The converter writes the file next to `checkpoint_00000000`. The shapes of
variables show the sizes of the model, but not these entries:

  {
    "rotary_dim": 64,            leading dimensions of each head that rotate
    "layer_norm_epsilon": 1e-05,
    "max_positions": 2048,       maximum sequence length of the model
    "bos_token_id": 50256,       null if the source has none
    "eos_token_id": 50256,
    "pad_token_id": 50256,       the EOS token if the source has none
    "num_layers": 28, "model_dim": 4096, "num_heads": 16, "head_dim": 256,
    "hidden_dim": 16384, "vocab_size": 50401,
    "dtype": "float32"           type of the variables
  }

For models other than GPT-J, the file also has "model_type", the name of the
family, and "rotary_base", the base of the wavelengths of rotary positions. If
positions are scaled for long texts, it has "rotary_scaling", an object with the
fields of `RotaryScaling`. If queries share keys, the file has
"num_kv_heads". If several tokens can end an
answer, it has "stop_token_ids", a list. Newer files have "num_parameters".
Some families have "details", an object with the fields of `Details`.

Checkpoints of other converters have no such file. The serving params must then
set these values.
"""

import dataclasses
import os
import typing

import msgspec

from saxml_ext.common import errors
from saxml_ext.common import files
from saxml_ext.common import storage
from saxml_ext.engine import architecture

FILE_NAME = 'gptj_config.json'

# The fields whose names in the file differ.
_KEYS = {
  'ln_epsilon': 'layer_norm_epsilon',
  'bos_id': 'bos_token_id',
  'eos_id': 'eos_token_id',
  'pad_id': 'pad_token_id',
  'family': 'model_type',
  'stop_ids': 'stop_token_ids',
}
# The values that the file omits, because the format was made for GPT-J only.
_OMITTED = {
  'family': 'gptj',
  'rotary_base': 10000.0,
  'rotary_scaling': None,
  'num_kv_heads': None,
  'stop_ids': None,
  'num_parameters': None,
  'details': architecture.Details(),
}


@dataclasses.dataclass(frozen=True)
class Description:
  """The entries of the file; None for missing entries.

  Attributes:
    rotary_dim: The number of leading dimensions of each head that rotate.
    ln_epsilon: The number that is added to the variance in layer norms.
    max_positions: The maximum sequence length of the model, in tokens.
    bos_id: The token that begins a text.
    eos_id: The token that ends a text.
    pad_id: The token that fills up a batch.
    num_layers, model_dim, num_heads, head_dim, hidden_dim, vocab_size: The
      sizes of the model, as in `engine.config.ModelConfig`.
    dtype: The name of the type of the variables.
    family: The name of the family; None means GPT-J.
    rotary_base: The base of the wavelengths of rotary positions; None means
      10,000.
    rotary_scaling: The scaling of rotary positions; None for no scaling.
    num_kv_heads: The number of heads of keys and values; None means num_heads.
    stop_ids: All tokens that end a text; None means only eos_id.
    num_parameters: The number of values of the model, without a tied head.
    details: Further numbers of the model; None for no others.
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
  rotary_scaling: architecture.RotaryScaling | None = None
  num_kv_heads: int | None = None
  stop_ids: list[int] | None = None
  num_parameters: int | None = None
  details: architecture.Details | None = None

  def encode(self) -> bytes:
    """Returns the bytes of the file."""
    values = {k: getattr(self, k) for k in _KINDS}
    document = {
      _key(k): _document(v)
      for k, v in values.items()
      if k not in _OMITTED or v not in (None, _OMITTED[k])
    }
    return files.encode_json(document).encode('ascii')


_KINDS = typing.get_type_hints(Description)


def write(directory: str, description: Description) -> None:
  """Writes the file.

  Args:
    directory: The parent of `checkpoint_00000000`, local or a URL.
    description: The contents of the file.

  Raises:
    OSError, errors.SaxError: The file system or the bucket reports an error.
  """
  path = os.path.join(directory, FILE_NAME)
  storage.write_bytes(path, description.encode(), sole_writer=True)


def read(checkpoint_path: str, above: bool = True) -> Description:
  """Reads the file from the checkpoint's directory or from its parent.

  Args:
    checkpoint_path: The path of the checkpoint.
    above: True to search the parent directory too.

  Returns:
    The contents of the file; an empty description if there is no file.

  Raises:
    errors.InvalidArgument: The file is malformed.
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
      f'{path} cannot be read: {e}. Convert the checkpoint again.'
    ) from e
  values = {}
  for name, kind in _KINDS.items():
    value = document.get(_key(name))
    try:
      values[name] = msgspec.convert(value, kind)
    except msgspec.ValidationError as e:
      raise errors.InvalidArgument(
        f'{path}: {_key(name)} is {value!r}. {e}. Convert the checkpoint again.'
      ) from e
  return Description(**values)


def _document(value: typing.Any) -> typing.Any:
  """Returns the form of a value in the file, without unset fields."""
  if not dataclasses.is_dataclass(value):
    return value
  return {
    field.name: getattr(value, field.name)
    for field in dataclasses.fields(value)
    if getattr(value, field.name) != field.default
  }


def _key(field: str) -> str:
  return _KEYS.get(field, field)
