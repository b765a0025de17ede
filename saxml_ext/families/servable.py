"""Describes serving params as data, from which `params/` makes classes."""

from collections.abc import Mapping
from typing import Any

# The extra inputs of most of Sax's published params.
EXTRA_INPUTS = {
  'temperature': 0.5,
  'per_example_max_decode_steps': 128,
  'per_example_top_k': 200,
  'per_example_top_p': 0.95,
}
# The attribute of each size of a model.
SIZES = {
  'num_layers': 'NUM_LAYERS',
  'model_dim': 'MODEL_DIMS',
  'hidden_dim': 'HIDDEN_DIMS',
  'num_heads': 'NUM_HEADS',
  'kv_heads': 'NUM_KV_HEADS',
  'head_dim': 'DIMS_PER_HEAD',
  'vocab_size': 'VOCAB_SIZE',
}


class Params:
  """One class of serving params.

  Its key in a table is the full name under which the class is published, such
  as `saxml_ext.params.gptj.AnyGPTJ`. A class is not published if the last part
  of its name begins with "_". It then only serves as a base.
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
      base: The name of the base params, without the package if it is the same;
        '' means the template. The base must come earlier in the table, or from
        an earlier family.
      aliases: Further names of the same class.
      **attributes: The values that differ from those of the base.
    """
    self.doc, self.base, self.aliases = doc, base, aliases
    self.attributes = attributes


Table = Mapping[str, Params]
