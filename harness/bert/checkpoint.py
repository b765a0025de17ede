"""Loads the weights of a BERT for question answering as numpy arrays.

The exporter writes an ONNX graph from them and does not need PyTorch. Only a
checkpoint in PyTorch's own format is read with PyTorch.
"""

from collections.abc import Iterator, Mapping
import dataclasses
import json
import os

import ml_dtypes  # noqa: F401  Registers bfloat16 in numpy.
import numpy as np
from safetensors import numpy as safetensors_numpy

from saxml_ext.common import files

_CONFIG_FILE = 'config.json'
_WEIGHTS_FILE = 'model.safetensors'


@dataclasses.dataclass(frozen=True)
class Config:
  """The sizes of a BERT, by names in config.json; BERT-large by default."""

  vocab_size: int = 30522
  hidden_size: int = 1024
  num_hidden_layers: int = 24
  num_attention_heads: int = 16
  intermediate_size: int = 4096
  max_position_embeddings: int = 512
  type_vocab_size: int = 2
  layer_norm_eps: float = 1e-12
  hidden_act: str = 'gelu'


@dataclasses.dataclass(frozen=True)
class Checkpoint:
  """The sizes and weights of a BERT.

  Attributes:
    config: The sizes.
    tensors: The weights in float32 by their names in BertForQuestionAnswering.
      Matrices of linear layers are [out, in].
  """

  config: Config
  tensors: Mapping[str, np.ndarray]


def load(path: str) -> Checkpoint:
  """Reads a checkpoint.

  Args:
    path: A Hugging Face directory (config.json, model.safetensors), or a file
      with the state_dict of BERT-large, such as the reference's model.pytorch.

  Raises:
    OSError: The checkpoint does not exist.
    ValueError: The checkpoint is not a BERT for question answering.
  """
  if os.path.isfile(path):
    config, tensors = Config(), _read_state_dict(path)
  else:
    config, tensors = _read_config(path), _read_safetensors(path)
  for name, shape in shapes(config).items():
    if name not in tensors or tensors[name].shape != shape:
      actual = tensors[name].shape if name in tensors else 'missing'
      raise ValueError(
        f'{path}: Tensor {name} is {actual}, but must be {shape}. Pass the'
        ' checkpoint of a BertForQuestionAnswering.'
      )
  return Checkpoint(
    config, {name: tensors[name].astype(np.float32) for name in shapes(config)}
  )


def make_random(config: Config, seed: int) -> Checkpoint:
  """Returns a BERT with random weights, for measurements of speed."""
  random = np.random.default_rng(seed)
  tensors = {}
  for name, shape in shapes(config).items():
    # BERT is initialized in the same way before training.
    if name.endswith('LayerNorm.weight'):
      tensors[name] = np.ones(shape, np.float32)
    else:
      tensors[name] = random.standard_normal(shape, np.float32) * 0.02
  return Checkpoint(config, tensors)


def save(made: Checkpoint, directory: str) -> None:
  """Writes a Hugging Face directory.

  Raises:
    OSError: The directory cannot be written.
  """
  os.makedirs(directory, exist_ok=True)
  safetensors_numpy.save_file(
    dict(made.tensors),
    os.path.join(directory, _WEIGHTS_FILE),
    metadata={'format': 'pt'},
  )
  record = {
    'architectures': ['BertForQuestionAnswering'],
    'model_type': 'bert',
    **dataclasses.asdict(made.config),
  }
  path = os.path.join(directory, _CONFIG_FILE)
  with open(path, 'w', encoding='utf-8') as file:
    file.write(json.dumps(record, indent=2) + '\n')


def shapes(config: Config) -> dict[str, tuple[int, ...]]:
  """Returns the shape of every tensor of a BertForQuestionAnswering."""
  return dict(_shapes(config))


def _shapes(config: Config) -> Iterator[tuple[str, tuple[int, ...]]]:
  size, inner = config.hidden_size, config.intermediate_size
  for name, rows in (
    ('word', config.vocab_size),
    ('position', config.max_position_embeddings),
    ('token_type', config.type_vocab_size),
  ):
    yield f'bert.embeddings.{name}_embeddings.weight', (rows, size)
  norms = ['bert.embeddings']
  linears = {'qa_outputs': (2, size)}
  for number in range(config.num_hidden_layers):
    layer = f'bert.encoder.layer.{number}'
    for part in ('query', 'key', 'value'):
      linears[f'{layer}.attention.self.{part}'] = (size, size)
    linears[f'{layer}.attention.output.dense'] = (size, size)
    linears[f'{layer}.intermediate.dense'] = (inner, size)
    linears[f'{layer}.output.dense'] = (size, inner)
    norms += [f'{layer}.attention.output', f'{layer}.output']
  for name in norms:
    yield f'{name}.LayerNorm.weight', (size,)
    yield f'{name}.LayerNorm.bias', (size,)
  for name, shape in linears.items():
    yield f'{name}.weight', shape
    yield f'{name}.bias', shape[:1]


def _read_config(directory: str) -> Config:
  path = os.path.join(directory, _CONFIG_FILE)
  try:
    record = files.read_json(path)
    config = Config(
      **{field.name: record[field.name] for field in dataclasses.fields(Config)}
    )
  except FileNotFoundError as error:
    raise FileNotFoundError(
      f'{directory} has no {_CONFIG_FILE}. Pass a Hugging Face directory of a'
      ' BertForQuestionAnswering.'
    ) from error
  except (KeyError, TypeError, ValueError) as error:
    raise ValueError(f'{path} is not a configuration of BERT: {error!r}') from (
      error
    )
  if config.hidden_act != 'gelu':
    raise ValueError(
      f'{path}: hidden_act is {config.hidden_act!r}, but only "gelu" is'
      ' supported.'
    )
  return config


def _read_safetensors(directory: str) -> Mapping[str, np.ndarray]:
  path = os.path.join(directory, _WEIGHTS_FILE)
  if not os.path.isfile(path):
    raise FileNotFoundError(
      f'{path} does not exist. Save the model with'
      f' model.save_pretrained({directory!r}, safe_serialization=True).'
    )
  try:
    return safetensors_numpy.load_file(path)
  except Exception as error:  # The library's errors have no common base.
    raise ValueError(f'{path} is not a safetensors file: {error}') from error


def _read_state_dict(path: str) -> Mapping[str, np.ndarray]:
  # pylint: disable=g-import-not-at-top
  try:
    import torch  # Only for state_dict files.
  except ImportError as error:
    raise ValueError(
      f'{path}: This program cannot read PyTorch files. Convert it to ONNX'
      ' with //harness/bert:export.'
    ) from error
  try:
    tensors = torch.load(path, map_location='cpu', weights_only=True)
    return {name: tensor.float().numpy() for name, tensor in tensors.items()}
  except Exception as error:  # The unpickler may raise any error.
    raise ValueError(
      f'{path} is not a state_dict of PyTorch: {error}'
    ) from error
