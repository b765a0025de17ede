"""Lists the contenders: an engine, a number format, and the program."""

from collections.abc import Sequence
import dataclasses

OURS = 'ours'
CTRANSLATE2 = 'ct2'
TRANSFORMERS = 'transformers'
OPENVINO = 'openvino'
LLAMA_CPP = 'llama_cpp'
GPTJ, LLAMA = FAMILIES = 'gptj', 'llama'

_PROGRAMS = {
  OURS: 'ours_worker',
  CTRANSLATE2: 'ct2_worker',
  TRANSFORMERS: 'transformers_worker',
  OPENVINO: 'openvino_worker',
  LLAMA_CPP: 'llama_cpp_worker',
}


@dataclasses.dataclass(frozen=True)
class Contender:
  """An engine and its dtype: a key of models.BYTES."""

  engine: str
  dtype: str

  @property
  def name(self) -> str:
    return f'{self.engine}_{self.dtype}'

  @property
  def families(self) -> tuple[str, ...]:
    """The families of models that the engine's worker runs."""
    if self.engine == LLAMA_CPP or self.dtype == 'int4':
      return (LLAMA,)
    return (GPTJ,) if self.engine == OPENVINO else FAMILIES

  @property
  def program(self) -> str:
    """The path of the worker in the repository, without suffix."""
    return f'benchmarks/workers/{_PROGRAMS[self.engine]}'


ALL = (
  Contender(OURS, 'int8'),
  Contender(OURS, 'bfloat16'),
  Contender(OURS, 'float32'),
  Contender(OURS, 'int4'),
  Contender(CTRANSLATE2, 'int8'),
  Contender(CTRANSLATE2, 'bfloat16'),
  Contender(CTRANSLATE2, 'float32'),
  Contender(TRANSFORMERS, 'bfloat16'),
  Contender(TRANSFORMERS, 'float32'),
  Contender(OPENVINO, 'int8'),
  Contender(OPENVINO, 'float32'),
  Contender(LLAMA_CPP, 'q8_0'),
  Contender(LLAMA_CPP, 'q4_0'),
)

# The other contenders are compared with the tokens of this one.
REFERENCE = Contender(TRANSFORMERS, 'float32')


def choose(
  names: Sequence[str], family: str | None = None
) -> tuple[Contender, ...]:
  """Returns contenders by name; an engine's name stands for all its dtypes.

  Args:
    names: The names.
    family: The family that the contenders must run; None for any.

  Raises:
    ValueError: A name is unknown.
  """
  chosen = []
  known = [c for c in ALL if family is None or family in c.families]
  for name in names:
    matches = [c for c in known if name in (c.name, c.engine)]
    if not matches:
      names_known = ', '.join(c.name for c in known)
      raise ValueError(f'--engines has {name!r}; choose from {names_known}.')
    chosen += [c for c in matches if c not in chosen]
  return tuple(chosen)
