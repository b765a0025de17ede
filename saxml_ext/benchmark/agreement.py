"""Whether engines say the same."""

from collections.abc import Sequence
import dataclasses

from saxml_ext.benchmark import contenders
from saxml_ext.benchmark import measure
from saxml_ext.benchmark import workload

# Requests whose answers are forced; each costs a prefill.
_FORCED = 32


@dataclasses.dataclass(frozen=True)
class Tokens:
  """An engine's answers against the reference's.

  equal and total count answers; shared is the part of the reference's tokens
  before the first difference.
  """

  name: str
  equal: int
  total: int
  shared: float


@dataclasses.dataclass(frozen=True)
class Top1:
  """How often int8 finds the same token likeliest as float32 does.

  Both get the same past, place by place. The engine's own float32 is what its
  int8 is compared with, over `places` places.
  """

  engine: str
  agreement: float
  places: int


def compare_tokens(
  name: str, answers: Sequence[Sequence[int]], truth: Sequence[Sequence[int]]
) -> Tokens:
  """Compares answers one by one."""
  equal = sum(list(a) == list(b) for a, b in zip(answers, truth, strict=True))
  shared = sum(map(_shared, answers, truth))
  total = sum(map(len, truth))
  return Tokens(name, equal, len(truth), shared / max(1, total))


def tokens(
  result: measure.ModeResult, requests: Sequence[workload.Request]
) -> tuple[str, list[Tokens]]:
  """All against transformers in float32, or the first float32 that runs.

  Beam search towards exact lengths that differ is left out: engines with one
  length for a batch search further and are cut, which is another answer.

  Returns:
    The reference's name ("" if there is none) and the others' agreement.
  """
  exact = {r.max_new for r in requests if r.exact}
  if result.mode == 'beam' and len(exact) > 1:
    return '', []
  floats = [e for e in result.entries if e.contender.dtype == 'float32']
  truth = result.find(contenders.REFERENCE) or next(iter(floats), None)
  if truth is None:
    return '', []
  return truth.contender.name, [
    compare_tokens(e.contender.name, e.answers, truth.answers)
    for e in result.entries
    if e is not truth
  ]


def top1(
  result: measure.ModeResult, requests: Sequence[workload.Request]
) -> list[Top1]:
  """Of the engines that run both float32 and int8 and can be forced."""
  found = []
  for engine in (contenders.OURS, contenders.CTRANSLATE2):
    exact = result.find(contenders.Contender(engine, 'float32'))
    rounded = result.find(contenders.Contender(engine, 'int8'))
    if exact is None or rounded is None:
      continue
    answers = exact.answers[:_FORCED]
    prompts = [list(r.tokens) for r in requests[: len(answers)]]
    arguments = {
      'sequences': [p + list(a) for p, a in zip(prompts, answers)],
      'starts': [len(p) for p in prompts],
    }
    likeliest = [e.worker.ask('top1', **arguments) for e in (exact, rounded)]
    same = [
      a == b for x, y in zip(*likeliest) for a, b in zip(x, y, strict=True)
    ]
    found.append(Top1(engine, sum(same) / len(same), len(same)))
  return found


def _shared(a: Sequence[int], b: Sequence[int]) -> int:
  """Leading tokens that both have."""
  pairs = zip(a, b)
  return next(
    (i for i, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b))
  )
