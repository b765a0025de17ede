"""A PAX checkpoint, and the files that describe it beside its weights."""

import dataclasses
import os

from converters.quantize import side_files
from saxml_ext.common import errors as common_errors
from saxml_ext.engine import config as config_lib
from saxml_ext.families import all as families
from saxml_ext.families import family as family_lib
from saxml_ext.pax import checkpoint
from saxml_ext.pax import description as description_lib
from saxml_ext.pax import errors

_ROTARY_BASE = config_lib.ModelConfig.rotary_base
# What running a model needs to know beside the shapes of its variables.
_NEEDED = ('rotary_dim', 'ln_epsilon', 'max_positions', 'eos_id')


@dataclasses.dataclass(frozen=True)
class Model:
  """An opened checkpoint.

  Attributes:
    reader: of its variables.
    directory: where the files lie that describe it.
    config: its sizes.
    eos_id: the token that ends a text.
    max_positions: longest sequence the model was made for, in tokens.
  """

  reader: checkpoint.Reader
  directory: str
  config: config_lib.ModelConfig
  eos_id: int
  max_positions: int


def family_of(reader: checkpoint.Reader) -> family_lib.Family:
  """Returns the family of a checkpoint; GPT-J unless a file says otherwise.

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
    errors.CheckpointError: it is no known model, incomplete, or lacks its
      gptj_config.json or an entry of it that running needs.
  """
  reader = checkpoint.Reader(path)
  directory = side_files.directory_of(reader.step_dir)
  file = os.path.join(directory, description_lib.FILE_NAME)
  try:
    description = description_lib.read(reader.step_dir)
    needed = {name: getattr(description, name) for name in _NEEDED}
    missing = [name for name, value in needed.items() if value is None]
    if missing:
      raise ValueError(f'nothing says {", ".join(missing)}')
    family = family_of(reader)
    config = config_lib.ModelConfig.from_pax(
      reader.specs,
      needed['rotary_dim'],
      rotary_base=description.rotary_base or _ROTARY_BASE,
      ln_epsilon=needed['ln_epsilon'],
      architecture=family.architecture,
    )
  except (OSError, common_errors.SaxError, ValueError) as e:
    raise errors.CheckpointError(
      f'{file} and the variables beside it do not describe a model that '
      f'can be run: {e}; convert the checkpoint with convert_hf'
    ) from e
  return Model(
    reader, directory, config, needed['eos_id'], needed['max_positions']
  )
