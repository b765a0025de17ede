"""What LoadGen's samples are sent to."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Target:
  """A model of a running cell, as its clients find it.

  Attributes:
    model_id: "/sax/<cell>/<model>".
    sax_root: root directory of the cell's files.
  """

  model_id: str
  sax_root: str
