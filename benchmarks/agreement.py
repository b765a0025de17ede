"""Compares the answers of engines with each other."""

from collections.abc import Sequence
import dataclasses

from benchmarks import contenders
from benchmarks import measure
from benchmarks import workload

# The number of requests whose answers are forced. Each costs a prefill.
_FORCED = 32
# The number of prompts that are computed in float32, layer by layer.
_EXACT = 8
_FORCIBLE = (contenders.OURS, contenders.CTRANSLATE2)
# The engines that return all beams of a search, with scores.
_LISTING = (contenders.OURS, contenders.CTRANSLATE2, contenders.TRANSFORMERS)


@dataclasses.dataclass(frozen=True)
class Tokens:
  """The agreement of an engine's answers with those of the reference.

  equal and total count answers. shared is the fraction of the reference's
  tokens before the first difference.
  """

  name: str
  equal: int
  total: int
  shared: float


@dataclasses.dataclass(frozen=True)
class Top1:
  """The rate at which int8 and float32 have the same most likely token.

  Both get the same previous tokens at each of `positions`. `reference`
  names the engine that computes in float32. It is the same engine if that
  supports float32, or another one.
  """

  engine: str
  reference: str
  agreement: float
  positions: int


@dataclasses.dataclass(frozen=True)
class NBest:
  """The agreement of an engine's n best answers to one request.

  The reference's answers have `total` entries. equal counts the entries with
  the same tokens at the same rank. in_list counts the entries with the same
  tokens at any rank. score_gap is the largest difference of the scores at one
  rank.
  """

  name: str
  equal: int
  in_list: int
  total: int
  score_gap: float


@dataclasses.dataclass(frozen=True)
class Agreement:
  """All comparisons in one mode.

  reference is the engine that `tokens` and `n_best` compare with, or "" if
  there is none.
  """

  mode: str
  reference: str
  tokens: list[Tokens]
  n_best: list[NBest]
  top1: list[Top1]


def compare(
  result: measure.ModeResult, requests: Sequence[workload.Request]
) -> Agreement:
  """Compares the answers of one mode."""
  reference, same = tokens(result, requests)
  lists = n_best(result) if reference else []
  return Agreement(result.mode, reference, same, lists, top1(result, requests))


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
  """Compares answers with those of transformers in float32.

  If transformers does not run, the first contender in float32 is the reference.
  Beam search towards different exact lengths is left out. Some engines have one
  length for a whole batch. They search longer and are cut, which gives another
  answer.

  Returns:
    The name of the reference ("" if there is none), and the agreement of the
    other engines with it.
  """
  exact = {r.max_new for r in requests if r.exact}
  if result.mode != 'greedy' and len(exact) > 1:
    return '', []
  truth = _truth(result)
  if truth is None:
    return '', []
  return truth.contender.name, [
    compare_tokens(e.contender.name, e.answers, truth.answers)
    for e in result.entries
    if e is not truth
  ]


def compare_n_best(name: str, answers: dict, truth: dict) -> NBest:
  """Compares two lists, both in the format of `service.NBest`."""
  mine, theirs = answers['tokens'], truth['tokens']
  return NBest(
    name,
    sum(a == b for a, b in zip(mine, theirs)),
    sum(a in theirs for a in mine),
    len(theirs),
    max(abs(a - b) for a, b in zip(answers['scores'], truth['scores'])),
  )


def n_best(result: measure.ModeResult) -> list[NBest]:
  """Compares all float32 beams of the first request with the reference's."""
  truth = _truth(result)
  if result.mode == 'greedy' or truth is None:
    return []
  lists = [
    e
    for e in result.entries
    if e is not truth
    and e.contender.dtype == 'float32'
    and e.contender.engine in _LISTING
  ]
  if not lists or truth.contender.engine not in _LISTING:
    return []
  expected = truth.worker.ask('n_best')
  return [
    compare_n_best(e.contender.name, e.worker.ask('n_best'), expected)
    for e in lists
  ]


def _truth(result: measure.ModeResult) -> measure.Entry | None:
  floats = [e for e in result.entries if e.contender.dtype == 'float32']
  return result.find(contenders.REFERENCE) or next(iter(floats), None)


def top1(
  result: measure.ModeResult, requests: Sequence[workload.Request]
) -> list[Top1]:
  """Compares the most likely tokens of int8 engines that can be forced.

  Engines that also run float32 are forced with their own float32 answers. In
  other cases, the model does not fit into memory in float32. Then all engines
  are forced with the prompts and compared with our model in float32, computed
  layer by layer.
  """
  figures = []
  for engine in _FORCIBLE:
    exact = result.find(contenders.Contender(engine, 'float32'))
    rounded = result.find(contenders.Contender(engine, 'int8'))
    if exact is None or rounded is None:
      continue
    answers = exact.answers[:_FORCED]
    prompts = [list(r.tokens) for r in requests[: len(answers)]]
    forced = _Forced(
      [p + list(a) for p, a in zip(prompts, answers)],
      [len(p) for p in prompts],
    )
    truth = forced.ask(exact, 'top1')
    figures.append(
      forced.compare(rounded, f'its {exact.contender.dtype}', truth)
    )
  return figures or _against_prompts(result, requests)


def _against_prompts(
  result: measure.ModeResult, requests: Sequence[workload.Request]
) -> list[Top1]:
  ours = next(
    (e for e in result.entries if e.contender.engine == contenders.OURS), None
  )
  rounded = [
    entry
    for engine in _FORCIBLE
    if (entry := result.find(contenders.Contender(engine, 'int8'))) is not None
  ]
  if ours is None or not rounded:
    return []
  prompts = [list(r.tokens) for r in requests[:_EXACT]]
  # A prediction needs at least one previous token.
  forced = _Forced(prompts, [1] * len(prompts))
  truth = forced.ask(ours, 'exact_top1')
  return [forced.compare(entry, 'float32', truth) for entry in rounded]


@dataclasses.dataclass(frozen=True)
class _Forced:
  """Token sequences, and the position in each where the comparison starts."""

  sequences: list[list[int]]
  starts: list[int]

  def ask(self, entry: measure.Entry, command: str) -> list[list[int]]:
    return entry.worker.ask(
      command, sequences=self.sequences, starts=self.starts
    )

  def compare(
    self, entry: measure.Entry, reference: str, truth: list[list[int]]
  ) -> Top1:
    pairs = zip(truth, self.ask(entry, 'top1'), strict=True)
    same = [a == b for x, y in pairs for a, b in zip(x, y, strict=True)]
    return Top1(
      entry.contender.engine, reference, sum(same) / len(same), len(same)
    )


def _shared(a: Sequence[int], b: Sequence[int]) -> int:
  """Returns the number of leading tokens that both sequences share."""
  pairs = zip(a, b)
  return next(
    (i for i, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b))
  )
