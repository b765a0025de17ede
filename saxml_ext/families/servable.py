"""Describes serving params as data, from which `params/` makes classes."""

from collections.abc import Mapping
from typing import Any

# Of most of Sax's published params.
EXTRA_INPUTS = {
  'temperature': 0.5,
  'per_example_max_decode_steps': 128,
  'per_example_top_k': 200,
  'per_example_top_p': 0.95,
}


class Params:
  """One class of serving params; its name is its key in a table.

  A table has the whole name, such as `saxml_ext.params.gptj.AnyGPTJ`, under
  which the class is published. A name whose last part begins with "_" is not
  published and serves as a base alone.
  """

  def __init__(
    self,
    doc: str,
    base: str = '',
    aliases: tuple[str, ...] = (),
    **attributes: Any,
  ):
    """Describes a class.

    Args:
      doc: The docstring.
      base: The name of the params that these derive from, without the package
        if it is the same; '' stands for the template. The base comes first in
        the table, or is of an earlier family.
      aliases: Further names of the same class.
      **attributes: The values that differ from those of the base.
    """
    self.doc, self.base, self.aliases = doc, base, aliases
    self.attributes = attributes


Table = Mapping[str, Params]
