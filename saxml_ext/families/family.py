"""Defines `Family`, the properties of one family of models.

The converters, the quantizer, the serving params and `//:serve` read all
properties of a family from its `Family`. docs/families.md explains how to add a
family.
"""

from collections.abc import Mapping
import dataclasses
import math
import re

from saxml_ext.engine import architecture as architecture_lib
from saxml_ext.engine import variables as variables_lib
from saxml_ext.families import hf_config
from saxml_ext.families import servable
from saxml_ext.pax import errors


@dataclasses.dataclass(frozen=True)
class Family:
  """The properties of one family. All values are plain data.

  Attributes:
    name: The value of ARCHITECTURE in the serving params. It is also the value
      of `model_type` in config.json, unless the config has another.
    title: The name in messages, for example "GPT-J".
    architecture: The computation of the engine.
    ln_direct_scale: True if a PAX checkpoint stores a layer norm's scale
      itself; False if it stores scale - 1, the default of praxis.
    config: The names of config.json's entries; None if the family has no
      Hugging Face format.
    tensors: The Hugging Face tensors of each field of `engine/variables.py`;
      `{layer}` stands for the index of the layer. A field without tensors
      becomes zeros. Queries, keys and values come from three tensors, or from
      one tensor in which the three parts of each head are adjacent.
    fused: The fields of each tensor that has several, in the order of its rows.
      Each of these fields has that tensor in `tensors`.
    rotates_halves: True if rotary positions rotate the halves of a head in
      Hugging Face checkpoints; False for neighboring dims. `architecture` says
      which of the two PAX checkpoints have.
    buffers: The pattern of names of tensors that are not weights.
    params: The serving params of the family.
    serving: The name of the serving params that `//:serve` chooses.
    published: The sizes of published models.
  """

  name: str
  title: str
  architecture: architecture_lib.Architecture
  ln_direct_scale: bool = True
  config: hf_config.Table | None = None
  tensors: Mapping[str, tuple[str, ...]] = dataclasses.field(
    default_factory=dict
  )
  fused: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
  rotates_halves: bool = False
  buffers: re.Pattern[str] = re.compile('')
  params: servable.Table = dataclasses.field(default_factory=dict)
  serving: str = ''
  published: Mapping[str, hf_config.HFConfig] = dataclasses.field(
    default_factory=dict
  )

  def __post_init__(self) -> None:
    """Checks that each variable has its tensors.

    Raises:
      ValueError: A field of tensors is missing, or is a string.
    """
    if not self.config:
      return
    needed = [row.field for row in self.table]
    missing = [field for field in needed if field not in self.tensors]
    if missing:
      unused = sorted(set(self.tensors).difference(needed))
      raise ValueError(
        f'tensors of {self.name!r} has no {", ".join(missing)}. The'
        f' architecture needs it. Use () for zeros. Unused: {unused}.'
      )
    for field, names in self.tensors.items():
      if isinstance(names, str):
        raise ValueError(
          f'tensors[{field!r}] of {self.name!r} is the string {names!r}.'
          ' Use a tuple.'
        )

  def sources(self, field: str) -> tuple[str, ...]:
    """Returns the Hugging Face tensors of a field of `engine/variables.py`.

    Raises:
      errors.CheckpointError: The field is one of queries, keys and values,
        which the family has in one tensor.
    """
    if field in self.tensors:
      return self.tensors[field]
    [(whole, index)] = [
      (row, index)
      for row in self.table
      for index, part in enumerate(row.parts)
      if part.field == field
    ]
    names = self.tensors[whole.field]
    if len(names) != len(whole.parts):
      raise errors.CheckpointError(
        f'{self.title} has queries, keys and values in one tensor. Then'
        ' num_kv_heads must equal num_heads.'
      )
    return names[index : index + 1]

  @property
  def table(self) -> variables_lib.Table:
    """The family's variables in a PAX checkpoint."""
    return variables_lib.table_of(self.architecture)

  def num_parameters(self, config: hf_config.HFConfig) -> int:
    """Returns the number of values of a model; a tied head has none.

    Args:
      config: The sizes of the model.
    """
    rows = self.table.stored(joined=config.num_heads == config.kv_heads)
    return sum(
      math.prod(row.shape(config)) * (config.num_layers if row.per_layer else 1)
      for row in rows
      if self.tensors.get(row.field) != ()
      and not (row.field == 'head' and config.tied_embeddings)
    )
