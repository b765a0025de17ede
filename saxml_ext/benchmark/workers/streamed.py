"""A Hugging Face GPT-J as PAX variables, each read when it is looked up.

A model of 6 billion parameters has 24 GB in float32. The engine makes its own
arrays of one variable after the other, so that no more than one of them needs
to be there in float32.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from converters.convert import gptj_source
from saxml_ext.benchmark import models
from saxml_ext.common import memory
from saxml_ext.engine import config as config_lib


class GPTJ:
  """A model that has not been read yet.

  Attributes:
    config: its sizes.
    dtype: "float32" or "bfloat16", which holds its embedding exactly.
    variables: name -> float32 array.
  """

  def __init__(self, directory: str):
    """Opens a directory of Hugging Face's layout.

    Raises:
      errors.CheckpointError: it does not hold a whole GPT-J.
    """
    source = gptj_source.GPTJSource(directory)
    self.config = config_lib.GPTJConfig.from_pax(
      {v.name: v for v in source.variables},
      models.read_config(directory)['rotary_dim'],
    )
    stored = source.checkpoint.read('transformer.wte.weight').dtype.name
    self.dtype = 'bfloat16' if stored == 'bfloat16' else 'float32'
    self.variables: Mapping[str, np.ndarray] = _Variables(source)


class _Variables(Mapping):
  """Each read, as float32, when it is looked up."""

  def __init__(self, source: gptj_source.GPTJSource):
    self._source = source
    self._by_name = {v.name: v for v in source.variables}

  def __getitem__(self, name: str) -> np.ndarray:
    variable = self._by_name[name]
    # Of the variable before, which is not needed any more.
    memory.give_back()
    return self._source.build(variable, np.dtype(np.float32))

  def __contains__(self, name: object) -> bool:
    return name in self._by_name

  def __iter__(self) -> Iterator[str]:
    return iter(self._by_name)

  def __len__(self) -> int:
    return len(self._by_name)
