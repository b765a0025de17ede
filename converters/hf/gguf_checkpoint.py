"""Opens GGUF files as checkpoints."""

from collections.abc import Mapping

import numpy as np

from converters.hf import checkpoint
from converters.hf import gguf_config
from converters.hf import gguf_file
from converters.hf import weights_file


class GGUFCheckpoint(checkpoint.Checkpoint):
  """The weights and the config of a GGUF file.

  Quantized tensors are dequantized to float32 when they are read.
  """

  config_name = 'its metadata'

  def __init__(self, path: str):
    """Opens the file and checks its structure, without reading weights.

    Args:
      path: The file.

    Raises:
      errors.CheckpointError: The file is damaged, or not supported.
    """
    self.directory = path
    self._file = gguf_file.GGUFFile(path)
    self.family, self.config = gguf_config.read(path, self._file)
    self.quantization = self._file.quantization
    if not self.quantization:
      self.float_type = weights_file.float_type([self._file])
    self.shapes: Mapping[str, tuple[int, ...]] = self._file.shapes

  def read(self, name: str, region: tuple[slice, ...] = ()) -> np.ndarray:
    values = self._file.read(name, region)
    if name.endswith('norm.weight') and not self.family.ln_direct_scale:
      return values - 1  # llama.cpp adds 1 to norms that store scale - 1.
    return values

  def release(self, name: str, done: bool = True) -> None:
    self._file.release(name, done)

  def files(self) -> list[str]:
    return [self.directory]

  def file_of(self, name: str) -> str:
    del name
    return self.directory
