"""A GPT-J checkpoint, and the files that describe it beside its weights."""

import dataclasses
import json
import os

from converters import gptj_description
from converters import quantization_files
from saxml_ext.common import errors as common_errors
from saxml_ext.common import storage
from saxml_ext.engine import config as config_lib
from saxml_ext.pax import checkpoint
from saxml_ext.pax import errors


@dataclasses.dataclass(frozen=True)
class Model:
  """An opened checkpoint.

  Attributes:
    reader: of its variables.
    directory: where the files lie that describe it.
    config: its sizes.
    description: the contents of gptj_config.json.
  """

  reader: checkpoint.Reader
  directory: str
  config: config_lib.GPTJConfig
  description: dict

  @property
  def eos_id(self) -> int:
    return self.description['eos_token_id']


def open_model(path: str) -> Model:
  """Opens a checkpoint that is going to be run.

  Raises:
    errors.CheckpointError: it is no GPT-J, incomplete, or lacks its
      gptj_config.json.
  """
  reader = checkpoint.Reader(path)
  directory = quantization_files.directory_of(reader.step_dir)
  file = os.path.join(directory, gptj_description.FILE_NAME)
  try:
    description = json.loads(storage.read_bytes(file))
    config = config_lib.GPTJConfig.from_pax(
        reader.specs,
        description['rotary_dim'],
        ln_epsilon=description['layer_norm_epsilon'],
    )
  except (
      OSError,
      common_errors.SaxError,
      KeyError,
      TypeError,
      ValueError,
  ) as e:
    raise errors.CheckpointError(
        f'{file} and the variables beside it do not describe a GPT-J that can '
        f'be run: {e!r}; convert the checkpoint with convert_gptj_ckpt'
    ) from e
  return Model(reader, directory, config, description)
