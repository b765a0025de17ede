"""Describes what is special to one family of models.

Everything that depends on the family of a model reads its `Family`: the
converters, the quantizer, serving params and `//:serve`. docs/families.md tells
how to add one.
"""

from collections.abc import Mapping
import dataclasses
import re

from saxml_ext.engine import architecture as architecture_lib
from saxml_ext.engine import variables as variables_lib
from saxml_ext.families import hf_config
from saxml_ext.families import servable


@dataclasses.dataclass(frozen=True)
class Family:
  """One family; all its values are data that others interpret.

  Attributes:
    name: ARCHITECTURE of the serving params, and `model_type` in config.json.
    title: The name in messages, for example "GPT-J".
    architecture: What the engine computes.
    ln_direct_scale: True if a PAX checkpoint stores a layer norm's scale
      itself; False if it stores scale - 1, as praxis does by default.
    config: How config.json names its entries; None if no model comes from
      Hugging Face.
    tensors: The Hugging Face tensors of each field of `engine/variables.py`;
      `{layer}` stands for the index of the layer. A field without tensors
      becomes zeros. Queries, keys and values come from three tensors, or from
      one in which each head has its three parts together.
    buffers: Matches names of tensors that are not weights.
    params: The serving params of the family.
    serving: The name of those that `//:serve` chooses.
    published: The sizes of published models: layers, width, heads, rotated
      dims of a head, tokens.
  """

  name: str
  title: str
  architecture: architecture_lib.Architecture
  ln_direct_scale: bool = True
  config: hf_config.Table | None = None
  tensors: Mapping[str, tuple[str, ...]] = dataclasses.field(
    default_factory=dict
  )
  buffers: re.Pattern[str] = re.compile('')
  params: servable.Table = dataclasses.field(default_factory=dict)
  serving: str = ''
  published: Mapping[str, tuple[int, int, int, int, int]] = dataclasses.field(
    default_factory=dict
  )

  def __post_init__(self) -> None:
    """Checks that each variable has its tensors.

    Raises:
      ValueError: A field of tensors is missing, or is a string.
    """
    if not self.config:
      return
    needed = [row.field for row in self.table.stored]
    missing = [field for field in needed if field not in self.tensors]
    if missing:
      unused = sorted(set(self.tensors).difference(needed))
      raise ValueError(
        f'tensors of {self.name!r} has no {", ".join(missing)}. The'
        f' architecture needs it; use () for zeros. Unused: {unused}.'
      )
    for field, names in self.tensors.items():
      if isinstance(names, str):
        raise ValueError(
          f'tensors[{field!r}] of {self.name!r} is the string {names!r};'
          ' use a tuple.'
        )

  @property
  def table(self) -> variables_lib.Table:
    """The family's variables in a PAX checkpoint."""
    return variables_lib.table_of(self.architecture)
