"""Groups requests for engines that decode whole batches.

Such an engine pads a batch to its longest prompt. It decodes until the longest
answer of the batch is complete. The best grouping depends on the engine, so
trials find the fastest one.
"""

from collections.abc import Callable, Sequence
import dataclasses
import functools
import itertools

from benchmarks import workload
from benchmarks.workers import trials

# A trial runs one of this many requests, and at least this many batches.
_SAMPLE = 6
_FEWEST = 2


@dataclasses.dataclass(frozen=True)
class Batching:
  """A grouping of requests into batches.

  Attributes:
    order: The order of the requests before they are cut into batches. "prompt"
      and "output" sort by the length of the prompt or the answer. "both" sorts
      by the answer and, within groups of four batches, by the prompt. "equal"
      sorts by the prompt, and all prompts of a batch have the same length.
    size: The maximum number of requests in a batch.
  """

  order: str
  size: int

  def __str__(self) -> str:
    return f'batches of {self.size} by {self.order}'

  def cut(self, requests: Sequence[workload.Request]) -> list[list[int]]:
    """Returns the indices of the requests of each batch."""

    def by_prompt(i: int):
      return len(requests[i].tokens), requests[i].max_new

    def by_output(i: int):
      return requests[i].max_new, len(requests[i].tokens)

    key = by_prompt if self.order in ('prompt', 'equal') else by_output
    order = sorted(range(len(requests)), key=key)
    if self.order == 'both':
      chunks = _chunks(order, 4 * self.size)
      order = [i for chunk in chunks for i in sorted(chunk, key=by_prompt)]
    if self.order == 'equal':
      groups = itertools.groupby(order, lambda i: len(requests[i].tokens))
      return [c for _, g in groups for c in _chunks(list(g), self.size)]
    return _chunks(order, self.size)


def run(
  requests: Sequence[workload.Request],
  batching: Batching,
  generate: Callable[[Sequence[workload.Request]], list[list[int]]],
) -> list[list[int]]:
  """Returns the answers in the order of the requests.

  Each answer is cut to the number of tokens that was requested.

  Args:
    requests: The requests.
    batching: The grouping.
    generate: The function that answers one batch.
  """
  answers: list[list[int]] = [[] for _ in requests]
  for batch in batching.cut(requests):
    generated = generate([requests[i] for i in batch])
    for i, answer in zip(batch, generated, strict=True):
      answers[i] = answer[: requests[i].max_new]
  return answers


def choose(
  requests: Sequence[workload.Request],
  orders: Sequence[str],
  sizes: Sequence[int],
  generate: Callable[[Sequence[workload.Request]], list[list[int]]],
  new_tokens: int | None = None,
) -> Batching:
  """Finds the fastest grouping by trials.

  It tries all orders at a middle size, then all sizes, then the orders again. A
  trial groups all requests and runs an even sample of the batches. If all
  requests are alike, there is no order, and one batch with all of them is tried
  too. If the model ends its answers, their lengths are unknown, and orders by
  output are left out.

  Args:
    requests: All requests of the run.
    orders: The orders to choose from; see Batching.
    sizes: The sizes to choose from.
    generate: The function that answers one batch.
    new_tokens: The limit of an answer in a trial; None for no limit.
  """
  first = requests[0]
  sizes = [s for s in sizes if s <= len(requests)] or [len(requests)]
  if all(
    r.exact and (len(r.tokens), r.max_new) == (len(first.tokens), first.max_new)
    for r in requests
  ):
    orders = ['prompt']
    sizes = sorted({*sizes, len(requests)})
  elif not all(r.exact for r in requests):
    orders = [o for o in orders if o in ('prompt', 'equal')]
  if len(orders) == len(sizes) == 1:
    return Batching(orders[0], sizes[0])
  middle = sizes[(len(sizes) - 1) // 2]

  @functools.cache
  def rate(batching: Batching) -> float:
    batches = _sample(requests, batching)
    if new_tokens is not None:
      batches = [trials.shortened(batch, new_tokens) for batch in batches]
    return trials.rate(batches, generate)

  best = trials.fastest([Batching(order, middle) for order in orders], rate)
  best = trials.fastest([Batching(best.order, size) for size in sizes], rate)
  return trials.fastest([Batching(order, best.size) for order in orders], rate)


def _sample(
  requests: Sequence[workload.Request], batching: Batching
) -> list[list[workload.Request]]:
  """Returns an even sample of the batches."""
  batches = batching.cut(requests)
  count = min(len(batches), max(_FEWEST, len(batches) // _SAMPLE))
  step = len(batches) / count
  chosen = [batches[int(step * (i + 0.5))] for i in range(count)]
  return [[requests[i] for i in batch] for batch in chosen]


def _chunks(items: Sequence[int], size: int) -> list[list[int]]:
  return [list(items[i : i + size]) for i in range(0, len(items), size)]
