"""Lists the contenders: an engine, a number format, and the program."""

from collections.abc import Sequence
import dataclasses

OURS = 'ours'
CTRANSLATE2 = 'ct2'
TRANSFORMERS = 'transformers'
OPENVINO = 'openvino'

_PROGRAMS = {
  OURS: 'ours_worker',
  CTRANSLATE2: 'ct2_worker',
  TRANSFORMERS: 'transformers_worker',
  OPENVINO: 'openvino_worker',
}


@dataclasses.dataclass(frozen=True)
class Contender:
  """An engine and its dtype: "float32", "bfloat16" or "int8"."""

  engine: str
  dtype: str

  @property
  def name(self) -> str:
    return f'{self.engine}_{self.dtype}'

  @property
  def program(self) -> str:
    """The path of the worker in the repository, without suffix."""
    return f'benchmarks/workers/{_PROGRAMS[self.engine]}'


ALL = (
  Contender(OURS, 'int8'),
  Contender(OURS, 'bfloat16'),
  Contender(OURS, 'float32'),
  Contender(CTRANSLATE2, 'int8'),
  Contender(CTRANSLATE2, 'bfloat16'),
  Contender(CTRANSLATE2, 'float32'),
  Contender(TRANSFORMERS, 'bfloat16'),
  Contender(TRANSFORMERS, 'float32'),
  Contender(OPENVINO, 'int8'),
  Contender(OPENVINO, 'float32'),
)

# The other contenders are compared with the tokens of this one.
REFERENCE = Contender(TRANSFORMERS, 'float32')


def choose(names: Sequence[str]) -> tuple[Contender, ...]:
  """Returns contenders by name; an engine's name stands for all its dtypes.

  Raises:
    ValueError: A name is unknown.
  """
  chosen = []
  for name in names:
    found = [c for c in ALL if name in (c.name, c.engine)]
    if not found:
      raise ValueError(
        f'--engines has {name!r}; choose from {", ".join(c.name for c in ALL)}.'
      )
    chosen += [c for c in found if c not in chosen]
  return tuple(chosen)
