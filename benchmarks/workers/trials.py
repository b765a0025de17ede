"""Chooses an engine's settings by short trials on the actual requests.

The trials of a large model take minutes, so the choice is cached.
"""

from collections.abc import Callable, Sequence
import hashlib
import os
import time
import traceback
from typing import TypeVar

from benchmarks import workload
from saxml_ext.common import files

_T = TypeVar('_T')
_Generate = Callable[[Sequence[workload.Request]], list[list[int]]]

# A trial of settings is one batch with this many requests and new tokens.
_REQUESTS = 8
_NEW_TOKENS = 32
# Trials of large models, which limit the new tokens, also limit the prompts.
_PROMPT = 64


def fastest(candidates: Sequence[_T], rate: Callable[[_T], float]) -> _T:
  """Returns the candidate with the highest rate.

  A candidate that fails is left out. The worker's log gets its traceback, and
  the rates of the others.

  Args:
    candidates: The candidates, at least one.
    rate: The function that measures a candidate, in tokens per CPU second.

  Raises:
    RuntimeError: All candidates failed. The message has the last reason.
  """
  rates: list[tuple[float, _T]] = []
  reason = 'there are no candidates'
  for candidate in candidates:
    try:
      rates.append((rate(candidate), candidate))
    except Exception as error:  # Another candidate may work.
      traceback.print_exc()
      reason = f'{candidate}: {error}'
      continue
    print(f'trial: {candidate}: {rates[-1][0]:.1f} tokens/CPU s', flush=True)
  if not rates:
    raise RuntimeError(f'no setting works here. Last error: {reason}')
  return max(rates, key=lambda item: item[0])[1]


def sample(
  requests: Sequence[workload.Request], new_tokens: int | None = None
) -> list[workload.Request]:
  """Returns an even sample of the requests, with shorter answers, for trials.

  Args:
    requests: The requests, at least one.
    new_tokens: The limit of an answer; None for a limit that suits small
      models.
  """
  count = min(_REQUESTS, len(requests))
  step = len(requests) / count
  chosen = [requests[int(step * (i + 0.5))] for i in range(count)]
  return shortened(chosen, new_tokens or _NEW_TOKENS)


def shortened(
  requests: Sequence[workload.Request], new_tokens: int | None
) -> list[workload.Request]:
  """Returns shorter requests if `new_tokens`, their limit, is given."""
  if new_tokens is None:
    return list(requests)
  return [
    workload.Request(
      r.tokens[:_PROMPT], min(r.min_new, new_tokens), min(r.max_new, new_tokens)
    )
    for r in requests
  ]


def kept(
  directory: str,
  key: Sequence[object],
  candidates: Sequence[_T],
  choose: Callable[[Sequence[_T]], _T],
) -> _T:
  """Returns the cached choice of an earlier run, or chooses now.

  Args:
    directory: The directory that has a small file for each key.
    key: The inputs of the choice. The texts of its elements are compared.
    candidates: The candidates. The text of the chosen one is cached.
    choose: The function that chooses one of the candidates.
  """
  digest = hashlib.sha256(repr([str(k) for k in key]).encode()).hexdigest()
  path = os.path.join(directory, f'trial-{digest[:16]}.json')
  by_name = {str(candidate): candidate for candidate in candidates}
  if os.path.exists(path):
    name = files.read_json(path, str)
    if name in by_name:
      print(f'cached choice: {name} ({path})', flush=True)
      return by_name[name]
  chosen = choose(candidates)
  files.write_json(path, str(chosen))
  return chosen


def rate(
  batches: Sequence[Sequence[workload.Request]], generate: _Generate
) -> float:
  """Returns the requested tokens per CPU second of this process."""
  tokens = 0
  began = time.process_time()
  for batch in batches:
    for request, answer in zip(batch, generate(batch), strict=True):
      tokens += min(len(answer), request.max_new)
  return tokens / (time.process_time() - began)
