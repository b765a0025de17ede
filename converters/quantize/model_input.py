"""Reads a model of another format as a float32 PAX checkpoint.

The quantizer thus converts and quantizes in one pass. No float checkpoint is
written.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from converters.convert import conversion
from converters.convert import model_source
from converters.hf import tokenizer_files
from saxml_ext.pax import manifest as manifest_lib
from saxml_ext.pax import metadata

_DTYPE = np.dtype(np.float32)


class ModelInput:
  """The float32 variables of a model, with the methods of checkpoint.Reader.

  Attributes:
    directory: The directory of the model.
    family: The family of the model.
    step_dir: The same directory, for messages.
    specs: The shape and type of every variable, sorted by name.
    manifest: An empty table, because no checksums are known.
  """

  def __init__(self, source: model_source.ModelSource):
    self._source = source
    self._variables = {v.name: v for v in source.variables}
    self.directory = self.step_dir = source.checkpoint.directory
    self.family = source.checkpoint.family
    self.specs: Mapping[str, metadata.ArraySpec] = {
      name: self._variables[name].spec(_DTYPE.name)
      for name in sorted(self._variables)
    }
    self.manifest: Mapping[str, manifest_lib.Entry] = {}

  def read(self, name: str) -> np.ndarray:
    """Returns a variable; raises CheckpointError if its source is invalid."""
    return self._source.build(self._variables[name], _DTYPE)

  def read_rows(self, name: str) -> Iterator[tuple[int, np.ndarray]]:
    """Returns the parts of a variable, see `checkpoint.Reader.read_rows`."""
    return self._source.parts(self._variables[name], _DTYPE)

  def read_scales(self, name: str) -> np.ndarray | None:
    """Returns the scales of a variable; see ModelSource.read_scales."""
    return self._source.read_scales(self._variables[name])

  def identity(self, options: Mapping[str, Any]) -> manifest_lib.Source:
    """Returns the identity of a run; a resumed run must match it.

    Args:
      options: The settings of the quantization.

    Raises:
      errors.CheckpointError: A file of the model cannot be read.
    """
    return conversion.source_record(self._source.checkpoint.files(), **options)

  def write_companions(self, pax: str) -> None:
    """Writes the files beside the checkpoint; raises UnwritableError."""
    conversion.write_companions(
      self._source, _DTYPE.name, pax, tokenizer_files.collect(self.directory)
    )
