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

from collections.abc import Mapping
import dataclasses
import json
import os
from typing import Any, NoReturn

from saxml_ext.common import errors
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
_TYPES = {
  'ln_epsilon': (int, float),
  'rotary_base': (int, float),
  'dtype': (str,),
  'family': (str,),
  'stop_ids': (list,),
}
_KINDS: Mapping[type, str] = {str: 'string', list: 'list of numbers'}
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
    """The bytes of the file."""
    document = {
      _key(k): v
      for k, v in dataclasses.asdict(self).items()
      if k not in _UNSAID or v not in (None, _UNSAID[k])
    }
    return (json.dumps(document, indent=2) + '\n').encode('ascii')


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
    document = json.loads(
      storage.read_bytes(path), parse_constant=_refuse_constant
    )
  except (OSError, ValueError, RecursionError) as e:
    raise errors.InvalidArgument(
      f'{path} cannot be read: {e}; convert the checkpoint again'
    ) from e
  if not isinstance(document, dict):
    raise errors.InvalidArgument(
      f'{path} holds a {type(document).__name__} instead of a JSON object;'
      ' convert the checkpoint again'
    )
  return Description(
    **{
      field.name: _value(path, document, field.name)
      for field in dataclasses.fields(Description)
    }
  )


def _refuse_constant(text: str) -> NoReturn:
  """Called for what Python reads beyond JSON: NaN and Infinity."""
  raise ValueError(f'{text} is no number')


def _value(path: str, document: Mapping[str, Any], field: str) -> Any:
  key = _key(field)
  value = document.get(key)
  types = _TYPES.get(field, (int,))
  items = value if isinstance(value, list) else ()
  fits = type(value) in types and all(type(each) is int for each in items)
  if value is not None and not fits:
    kind = _KINDS.get(types[0], 'number')
    raise errors.InvalidArgument(
      f'{path}: {key} is {value!r}, but must be a {kind}; convert the'
      ' checkpoint again'
    )
  return value


def _key(field: str) -> str:
  return _KEYS.get(field, field)
