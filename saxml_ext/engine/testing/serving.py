"""Serves requests with a Runner until all are answered, for tests."""

from collections.abc import Callable, Iterable, Sequence

from saxml_ext.engine import request as request_lib
from saxml_ext.engine import runner as runner_lib


def serve(
  runner: runner_lib.Runner,
  requests: Sequence[request_lib.Request],
  order: Iterable[int] | None = None,
  after_call: Callable[[], None] | None = None,
) -> list[request_lib.Result]:
  """Returns the results by request; slots are refilled as they become free.

  Args:
    runner: The runner, with all slots free.
    requests: The requests to answer.
    order: The order in which the requests get slots. None stands for their own
      order.
    after_call: The function to call after each call of the runner.
  """
  waiting = list(range(len(requests)) if order is None else order)
  holder: dict[int, int] = {}
  results: dict[int, request_lib.Result] = {}
  while waiting or holder:
    free = [s for s in range(runner.num_slots) if s not in holder]
    batch = dict(zip(free, waiting))
    del waiting[: len(batch)]
    holder |= batch
    runner.prefill_and_insert({slot: requests[i] for slot, i in batch.items()})
    if after_call is not None:
      after_call()
    for slot, result in runner.step().items():
      results[holder.pop(slot)] = result
    if after_call is not None:
      after_call()
  return [results[i] for i in range(len(requests))]


def tokens(results: Iterable[request_lib.Result]) -> list[list[list[int]]]:
  """Returns the tokens of each hypothesis of each result."""
  return [[h.tokens.tolist() for h in r.hypotheses] for r in results]
