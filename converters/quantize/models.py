"""PAX checkpoints as models: opened, checked and run one layer at a time.

Each layer is run by the engine, so its results are the engine's. Hidden states
wait between layers, so that no more than one layer is in memory, and the inputs
of each matrix can be seen.
"""

from collections.abc import Callable, Mapping
import dataclasses
import functools
import os
import re
from typing import TypeVar

import jax
import numpy as np

from converters.quantize import sample_texts
from saxml_ext.common import errors as common_errors
from saxml_ext.common import user_path
from saxml_ext.engine import components
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import model as model_lib
from saxml_ext.engine import variables
from saxml_ext.engine import weights as weights_lib
from saxml_ext.families import all as families
from saxml_ext.families import family as family_lib
from saxml_ext.families import hf_config
from saxml_ext.pax import checkpoint
from saxml_ext.pax import description as description_lib
from saxml_ext.pax import errors

_Part = TypeVar('_Part')

# Positions whose logits are computed together: 100 MB at 50,400 tokens.
_POSITIONS = 512
_ROTARY_BASE = config_lib.ModelConfig.rotary_base
# What running a model needs to know beside the shapes of its variables.
_NEEDED = ('rotary_dim', 'ln_epsilon', 'max_positions', 'eos_id')
_STEP = re.compile(r'checkpoint_\d+')
_SHOWN = 3


@functools.partial(jax.jit, static_argnums=1)
def _run_layer(
  layer: weights_lib.Layer, config: config_lib.ModelConfig, x: jax.Array
) -> tuple[jax.Array, model_lib.Taps]:
  rotations = components.rotary_table(
    x.shape[1], config.rotary_dim, config.rotary_base
  )
  x, taps = model_lib.run_layer(layer, config, x, rotations)
  mixed = taps.mixed.transpose(0, 2, 1, 3).reshape(*x.shape[:2], -1)
  return x, taps._replace(mixed=mixed)


@functools.partial(jax.jit, static_argnums=1)
def _logits(
  weights: weights_lib.Weights, config: config_lib.ModelConfig, x: jax.Array
) -> jax.Array:
  return model_lib.logits(weights, config, x)


@dataclasses.dataclass(frozen=True)
class Model:
  """A model on disk.

  Attributes:
    reader: Its checkpoint, in float or int8.
    config: Its sizes.
    eos_id: The token that ends a text.
    max_positions: The longest sequence the model was made for, in tokens.
    quantization: How it is run, as for `weights.PaxReader`; None for a float
      checkpoint.
  """

  reader: checkpoint.Reader
  config: config_lib.ModelConfig
  eos_id: int
  max_positions: int
  quantization: str | None = None

  def run_as(self, quantization: str | None) -> 'Model':
    """Returns the model with another way to run it."""
    return dataclasses.replace(self, quantization=quantization)

  @property
  def _embedding(self) -> str:
    table = variables.table_of(self.config.architecture)
    return table.by_field['embedding'].path()

  def embed(self, texts: sample_texts.Texts) -> list[np.ndarray]:
    """Returns what the first layer reads: [B, T, D] float32 for each batch."""
    table = self.reader.read(self._embedding)
    return [table[batch.tokens].astype(np.float32) for batch in texts.batches]

  def read_layer(self, index: int) -> weights_lib.Layer:
    """Reads a layer."""
    names = [n for n in self.reader.specs if variables.layer_of(n) == index]
    return self.layer({name: self.reader.read(name) for name in names}, index)

  def layer(
    self, values: Mapping[str, np.ndarray], index: int
  ) -> weights_lib.Layer:
    """Makes a layer from its variables.

    Raises:
      errors.CheckpointError: They are not those of such a layer.
    """
    return self._made(values, lambda reader: reader.layer(index))

  def run_layer(
    self, layer: weights_lib.Layer, x: np.ndarray
  ) -> tuple[jax.Array, model_lib.Taps]:
    """Runs a layer on hidden states x [B, T, D], padded on the right.

    Returns:
      Its result [B, T, D], and what its matrices were multiplied with, one row
      for each token: `mixed` is [B, T, N * H].
    """
    return _run_layer(layer, self.config, x)

  def logits(self, x: np.ndarray) -> np.ndarray:
    """Returns logits [P, V] float32 of the last layer's results [P, D].

    Raises:
      errors.CheckpointError: The variables behind the layers are not those of
        such a model.
    """
    names = [n for n in self.reader.specs if variables.layer_of(n) is None]
    values = {n: self.reader.read(n) for n in names if n != self._embedding}

    def leaf(reader: weights_lib.PaxReader, field: str):
      return None if field == 'embedding' else reader.leaf(field)

    weights = self._made(
      values,
      lambda reader: weights_lib.assemble(
        functools.partial(leaf, reader), layers=()
      ),
    )
    parts = range(0, len(x), _POSITIONS)
    return np.concatenate(
      [_logits(weights, self.config, x[i : i + _POSITIONS]) for i in parts]
    )

  def _made(
    self,
    values: Mapping[str, np.ndarray],
    make: Callable[[weights_lib.PaxReader], _Part],
  ) -> _Part:
    reader = weights_lib.PaxReader(
      values,
      self.config,
      quantization=self.quantization,
      quantize_head=False,
    )
    try:
      return make(reader)
    except ValueError as e:
      raise errors.CheckpointError(f'{self.reader.step_dir}: {e}') from e


def root_of(path: str) -> str:
  """Returns the directory that holds, or will hold, a checkpoint's step.

  The published tool is given `<dir>/checkpoint_00000000/state`; here `<dir>`
  will do, and all three mean the same.
  """
  path = user_path.resolve(path).rstrip('/')
  if os.path.basename(path) == 'state':
    path = os.path.dirname(path)
  if _STEP.fullmatch(os.path.basename(path)):
    path = os.path.dirname(path)
  return path


def family_of(reader: checkpoint.Reader) -> family_lib.Family:
  """Returns the family of a checkpoint; GPT-J unless a file names another.

  Raises:
    errors.CheckpointError: The file cannot be read, or names another family.
  """
  try:
    return families.named(description_lib.read(reader.step_dir).family)
  except (OSError, common_errors.SaxError, errors.CheckpointError) as e:
    raise errors.CheckpointError(f'{reader.step_dir}: {e}') from e


def open_model(path: str) -> Model:
  """Opens a checkpoint that is going to be run.

  Raises:
    errors.CheckpointError: It is no known model, incomplete, or lacks its
      gptj_config.json or an entry of it that running needs.
  """
  reader = checkpoint.Reader(path)
  try:
    description = description_lib.read(reader.step_dir)
    needed = {name: getattr(description, name) for name in _NEEDED}
    missing = [name for name, value in needed.items() if value is None]
    if missing:
      raise ValueError(f'{", ".join(missing)} is not set')
    config = config_lib.ModelConfig.from_pax(
      reader.specs,
      needed['rotary_dim'],
      rotary_base=description.rotary_base or _ROTARY_BASE,
      ln_epsilon=needed['ln_epsilon'],
      architecture=family_of(reader).architecture,
    )
  except (OSError, common_errors.SaxError, ValueError) as e:
    file = os.path.join(reader.directory, description_lib.FILE_NAME)
    raise errors.CheckpointError(
      f'{file} and the variables beside it do not describe a model that '
      f'can be run: {e}; convert the checkpoint with convert_hf'
    ) from e
  return Model(reader, config, needed['eos_id'], needed['max_positions'])


def check_fits(table: str | None, reader: checkpoint.Reader) -> None:
  """Checks that a checkpoint has the variables that a table is of.

  Stock Sax's tool has a table of matrices for each kind of model. Given a model
  that the table does not fit, it quantizes the matrices whose names it happens
  to know and leaves the others in float; here such a checkpoint is refused.

  Args:
    table: The value of --quantization_configs; None means the table of the
      checkpoint's family.
    reader: The float checkpoint.

  Raises:
    errors.CheckpointError: The table is of another family, variables are
      missing, or there are others whose numbers it knows nothing of.
  """
  found = {n.removesuffix(variables.SCALE_SUFFIX) for n in reader.specs}
  layers = set(map(variables.layer_of, found)) - {None}
  family = family_of(reader)
  if table not in (None, family.name) or not family.tensors:
    raise errors.CheckpointError(
      f'{reader.step_dir} is a {family.title}, which the table'
      f' --quantization_configs={table} does not fit; leave the flag out. There'
      f' are tables of {" and ".join(families.convertible())}'
    )
  # Their names depend on nothing but the number of layers.
  sizes = hf_config.HFConfig(len(layers) or 1, 1, 1, 1, 1)
  expected = {row.path(layer) for row, layer in family.table.of_model(sizes)}
  problems = [
    f'it has {word}{_some(names)}'
    for word, names in (('no ', expected - found), ('', found - expected))
    if names
  ]
  if problems:
    raise errors.CheckpointError(
      f'{reader.step_dir} is not a whole {family.title}:'
      f' {", and ".join(problems)}; quantize what convert_hf writes'
    )


def _some(names: set[str]) -> str:
  first = ', '.join(sorted(names)[:_SHOWN])
  more = len(names) - _SHOWN
  return first + (f' and {more} more' if more > 0 else '')
