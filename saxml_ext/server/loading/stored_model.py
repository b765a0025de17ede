"""A model in a PAX checkpoint: reads its sizes first, then its weights.

A checkpoint of 6 billion parameters takes minutes to read and fills most of a
host's memory. So names, shapes and types are checked before a weight is read.
Each variable is read when the engine asks for it. It is released when the
engine has made its own array of it. So a load needs memory for the engine's
weights and for one variable, or for two layers if they are stacked.
"""

import abc
from collections.abc import Iterator, Mapping
import contextlib
import dataclasses
import hashlib
import math
import os
from typing import Any

import jax
import numpy as np

from saxml_ext.common import errors
from saxml_ext.common import memory
from saxml_ext.engine import abstract_weights
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import variables as variables_lib
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.numerics import quant
from saxml_ext.engine.parallel import split_weights
from saxml_ext.params import settings as settings_lib
from saxml_ext.pax import checkpoint
from saxml_ext.pax import description as description_lib
from saxml_ext.pax import errors as pax_errors
from saxml_ext.pax import metadata
from saxml_ext.server.lifecycle import cancellation

# The published params have 50,400 or 50,401 tokens, and so have the published
# checkpoints. MLPerf's GPT-J has one more token than the original, for padding.
# No answer contains this token.
_VOCAB_SLACK = 1
_DEFAULT_LN_EPSILON = 1e-5
# The size in bytes from which on a variable's memory is released early.
_LARGE = 1 << 20
_DIGITS = 16  # The digits of a hash in messages.


class Source(abc.ABC):
  """Weights that have not been read or created yet."""

  @abc.abstractmethod
  def config(self, settings: settings_lib.Settings) -> config_lib.ModelConfig:
    """Returns the sizes of the model without reading weights.

    Args:
      settings: The settings, with rotary_dim and ln_epsilon.

    Raises:
      errors.InvalidArgument: The settings do not match the weights.
    """

  @abc.abstractmethod
  def variables(
    self, config: config_lib.ModelConfig, quantization: str | None
  ) -> Any:
    """Returns the variables by name, each read or created when looked up."""

  @abc.abstractmethod
  def fingerprint(self) -> str:
    """Returns a short text that distinguishes these weights from others."""

  @abc.abstractmethod
  def refused(self, error: Exception) -> errors.InvalidArgument:
    """Returns an error for users if a variable cannot be used."""

  def check_room(self, shapes: weights_lib.Weights) -> None:
    """Raises errors.InvalidArgument if weights of these shapes do not fit."""

  def weights(
    self,
    config: config_lib.ModelConfig,
    settings: settings_lib.Settings,
    device: jax.Device | None,
  ) -> weights_lib.Weights:
    """Reads the weights, with stacked layers if there is a max_context.

    Args:
      config: The sizes of the model.
      settings: The settings of the model.
      device: The device that gets the weights; None lets JAX choose.

    Raises:
      errors.InvalidArgument: A variable is damaged, or cannot be used with
        these params.
    """
    form = settings.dtype, settings.quantization, settings.quantize_head
    with self._refusing(), jax.default_device(device):
      self.check_room(abstract_weights.shapes(config, *form))
      variables = self.variables(config, settings.quantization)
      stacked = settings.engine.max_context > 0
      return weights_lib.from_pax(variables, config, *form, stacked=stacked)

  def split(
    self,
    config: config_lib.ModelConfig,
    form: split_weights.Form,
    mesh: jax.sharding.Mesh,
  ) -> weights_lib.Weights:
    """Reads the parts of the weights that the devices of this process hold.

    Args:
      config: The sizes of the model.
      form: The form of the weights.
      mesh: The devices.

    Raises:
      errors.InvalidArgument: A variable is damaged, or cannot be used with
        these params.
    """
    # A variable may be too large for one device, so it is first stored on the
    # host.
    host = jax.local_devices(backend='cpu')[0]
    with self._refusing(), jax.default_device(host):
      self.check_room(split_weights.structs(config, form, mesh))
      variables = self.variables(config, form.quantization)
      return split_weights.from_pax(variables, config, form, mesh)

  @contextlib.contextmanager
  def _refusing(self) -> Iterator[None]:
    try:
      yield
    except pax_errors.CheckpointError as e:
      raise errors.InvalidArgument(str(e)) from e
    except ValueError as e:
      raise self.refused(e) from e


class StoredModel(Source):
  """A complete checkpoint whose variables have not been read yet."""

  def __init__(self, path: str):
    """Opens the checkpoint at `path`, see `checkpoint.find_step_dir`.

    Raises:
      errors.InvalidArgument: There is no checkpoint, or it is incomplete or
        damaged.
    """
    try:
      self._reader = checkpoint.Reader(path)
    except pax_errors.CheckpointError as e:
      raise errors.InvalidArgument(str(e)) from e

  def config(self, settings: settings_lib.Settings) -> config_lib.ModelConfig:
    """Returns the sizes of the model without reading weights.

    Args:
      settings: The settings, with rotary_dim and ln_epsilon.

    Raises:
      errors.InvalidArgument: The checkpoint has another model than the serving
        params, lacks variables, or is quantized while the params are not.
    """
    rotary_dim, ln_epsilon = settings.rotary_dim, settings.ln_epsilon
    assert rotary_dim is not None and ln_epsilon is not None
    specs = self._reader.specs
    try:
      actual = config_lib.ModelConfig.from_pax(
        specs,
        rotary_dim,
        architecture=settings.family.architecture,
        ln_direct_scale=settings.family.ln_direct_scale,
        rotary_base=settings.rotary_base,
        rotary_scaling=settings.rotary_scaling,
        details=settings.details,
      )
      _check_sizes(actual, settings.shape)
      _check_variables(specs, actual, settings.quantization)
    except (KeyError, ValueError, pax_errors.CheckpointError) as e:
      raise errors.InvalidArgument(
        f'{self._reader.step_dir} is not a checkpoint that these serving params'
        f' can serve: {e}'
      ) from e
    return dataclasses.replace(actual, ln_epsilon=ln_epsilon)

  def quantizes_head(self, config: config_lib.ModelConfig) -> bool:
    """Returns True if the head is int8 in the checkpoint, and stays so.

    Args:
      config: The sizes that `config` returned.
    """
    head = variables_lib.table_of(config.architecture).by_field.get('head')
    if head is None:
      return False
    specs = self._reader.specs
    return specs[variables_lib.find(specs, head.name)].dtype == 'int8'

  def variables(
    self, config: config_lib.ModelConfig, quantization: str | None
  ) -> Any:
    """Returns the variables, see `Source`."""
    del config, quantization
    return _Variables(self._reader)

  def refused(self, error: Exception) -> errors.InvalidArgument:
    """Returns an error for users, see `Source`."""
    return errors.InvalidArgument(
      f'{self._reader.step_dir} cannot be served: {error}'
    )

  def fingerprint(self) -> str:
    """Returns the checkpoint's step and a hash, independent of its path.

    The hash covers the checksums in the manifest, and so all values. A
    checkpoint written by paxml has no manifest. For it, the hash covers names,
    shapes and types.
    """
    reader = self._reader
    content = sorted((reader.manifest or reader.specs).items())
    digest = hashlib.sha256(repr(content).encode()).hexdigest()[:_DIGITS]
    return f'{os.path.basename(reader.step_dir)} {digest}'


class _Variables(Mapping):
  """The variables of a checkpoint by name, each read when it is looked up.

  They can be read in parts: the class implements `split_weights.Source` and
  `stored_variables.Parts`.
  """

  def __init__(self, reader: checkpoint.Reader):
    self._reader = reader
    self.specs = reader.specs

  def __getitem__(self, name: str) -> np.ndarray:
    if name not in self.specs:
      raise KeyError(name)
    cancellation.check()
    if self.specs[name].num_bytes > _LARGE:
      # This releases the memory of earlier variables, which are no longer
      # needed.
      memory.give_back()
    return self._reader.read(name)

  def read_part(
    self, name: str, slices: tuple[slice | int, ...] | slice | int
  ) -> np.ndarray:
    """Reads a part of a variable, for example `np.s_[10, :, 0:5]`."""
    cancellation.check()
    memory.give_back()
    return self._reader.read_part(name, slices)

  def __contains__(self, name: object) -> bool:
    return name in self.specs

  def __iter__(self) -> Iterator[str]:
    return iter(self.specs)

  def __len__(self) -> int:
    return len(self.specs)


def complete(
  settings: settings_lib.Settings, info: description_lib.Description
) -> settings_lib.Settings:
  """Returns settings completed with the values of the checkpoint."""
  missing = [
    name
    for name, own, other in (
      ('EOS_ID', settings.engine.eos_id, info.eos_id),
      ('ROTARY_DIM', settings.rotary_dim, info.rotary_dim),
    )
    if own is None and other is None
  ]
  if missing:
    names = ' and '.join(missing)
    raise errors.InvalidArgument(
      f'{names} are set neither in the serving params nor in a'
      ' gptj_config.json beside the checkpoint. Convert the checkpoint with'
      ' convert_gptj_ckpt, or publish with the override'
      f' {missing[0]}=<number>.'
    )
  total = settings.engine.max_length
  if settings.engine.max_context > (info.max_positions or math.inf):
    raise errors.InvalidArgument(
      f'CONTEXT_LEN is {total}, above the {info.max_positions} positions of the'
      ' model. Lower it.'
    )
  if total > (info.max_positions or math.inf):
    raise errors.InvalidArgument(
      f'INPUT_SEQ_LEN={settings.engine.max_prompt} plus'
      f' MAX_DECODE_STEPS={settings.engine.max_new_tokens} is {total}, above'
      f' the {info.max_positions} positions of the model. Lower one of them.'
    )
  if info.family not in (None, settings.family.name):
    raise errors.InvalidArgument(
      f'the checkpoint is a {info.family}, but the serving params are for'
      f' {settings.family.name}. Publish with params of its family.'
    )
  usual = description_lib.Description(ln_epsilon=_DEFAULT_LN_EPSILON)
  return settings.completed(info).completed(usual)


def with_head(
  stored: object,
  settings: settings_lib.Settings,
  config: config_lib.ModelConfig,
) -> settings_lib.Settings:
  """Returns settings whose programs fit the loaded head.

  A head that is int8 in the checkpoint stays int8, whatever the params specify.
  """
  if isinstance(stored, StoredModel) and stored.quantizes_head(config):
    return dataclasses.replace(settings, quantize_head=True)
  return settings


def _check_sizes(
  actual: config_lib.ModelConfig, expected: Mapping[str, int]
) -> None:
  """Raises ValueError if a size differs from the one in the params."""
  for name, size in expected.items():
    slack = _VOCAB_SLACK if name == 'vocab_size' else 0
    if abs(getattr(actual, name) - size) > slack:
      raise ValueError(
        f'it has {name}={getattr(actual, name)}, but the serving params require'
        f' {size}. Publish the checkpoint with the params of its model.'
      )


def _check_variables(
  specs: Mapping[str, metadata.ArraySpec],
  model: config_lib.ModelConfig,
  quantization: str | None,
) -> None:
  """Raises ValueError if a variable is missing or invalid."""
  repeated = variables_lib.is_repeated(specs)
  table = variables_lib.table_of(model.architecture)
  joined = variables_lib.is_joined(specs)
  for variable, layer in table.entries(model, joined):
    if repeated and variable.per_layer and layer:
      continue  # The first layer's variable has all layers.
    leading = (model.num_layers,) if repeated and variable.per_layer else ()
    name = variables_lib.find(specs, variable.below_prefix(layer, repeated))
    shape = (*leading, *variable.shape(model))
    stored = specs[name].shape
    # Sax's converter truncates the head to the vocabulary, but not its bias.
    longer = variable.field == 'head_bias' and stored > shape
    if stored != shape and not longer:
      raise ValueError(
        f'{name} has shape {list(stored)}, but the sizes of the other'
        f' variables require {list(shape)}'
      )
    if specs[name].dtype == 'int8' and variable.is_matrix:
      _check_quantized(name, specs, quantization)


def _check_quantized(
  name: str, specs: Mapping[str, metadata.ArraySpec], quantization: str | None
) -> None:
  scale = name + variables_lib.SCALE_SUFFIX
  if quantization in quant.NOT_INT8:
    raise ValueError(
      f'{name} is int8, but the serving params have'
      f' QUANTIZATION="{quantization or "none"}".'
      ' Publish with QUANTIZATION="int8" or "int8_weights", or use the float'
      ' checkpoint.'
    )
  if scale not in specs:
    raise ValueError(
      f'{name} is int8, but its scale {scale} is missing. Quantize the float'
      ' checkpoint again with offline_quantize.'
    )


def check_ids(settings: settings_lib.Settings, vocab_size: int) -> None:
  """Raises errors.InvalidArgument for an id that is not in the vocabulary."""
  ids = [('EOS_ID', settings.engine.eos_id), ('SOS_ID', settings.sos_id)]
  ids += [('STOP_TOKEN_IDS', i) for i in settings.stop_ids or ()]
  for name, value in ids:
    if value is not None and not 0 <= value < vocab_size:
      raise errors.InvalidArgument(
        f'{name}={value} is not in the vocabulary of {vocab_size} ids. Publish'
        f' with an id from 0 to {vocab_size - 1}.'
      )
  if (settings.engine.tokens_per_beam or 0) > vocab_size:
    raise errors.InvalidArgument(
      f'TOKENS_PER_BEAM={settings.engine.tokens_per_beam} is above the'
      f' {vocab_size} ids of the vocabulary. Lower it.'
    )
