"""Generates answers with `generate` of transformers, or a compatible method."""

from collections.abc import Sequence
from typing import Any

import torch

from benchmarks import workload
from benchmarks.workers import batching
from benchmarks.workers import service
from benchmarks.workers import trials

# Left padding of prompts costs little compared with answers of different
# lengths.
_ORDERS = ('output', 'prompt')
_SIZES = (8, 16, 32)


class TorchEngine:
  """An engine with padded batches, grouped in the fastest way of the trials."""

  def __init__(self):
    self._model: Any = None

  def load(self, job: service.Job) -> None:
    self._set_up(job)
    self._model = self.load_model(job)

  def _set_up(self, job: service.Job) -> None:
    self._job = job
    torch.set_num_threads(job.threads)

  def load_model(self, job: service.Job) -> Any:
    """Loads the model; its `generate` must be like that of transformers."""
    raise NotImplementedError

  def prepare(self) -> str:
    requests = self._job.requests
    shortest = min(requests, key=lambda r: len(r.tokens) + r.max_new)
    self._batch(trials.shortened([shortest], self._job.trial_new_tokens))
    self._batching = batching.choose(
      requests, _ORDERS, _SIZES, self._batch, self._job.trial_new_tokens
    )
    return str(self._batching)

  def generate(self, requests: Sequence[workload.Request]) -> list[list[int]]:
    return batching.run(requests, self._batching, self._batch)

  def n_best(self) -> service.NBest:
    """Returns all beams of the first request."""
    output = self._search(self._job.requests[:1], self._job.beams)
    tokens = output.sequences[:, len(self._job.requests[0].tokens) :].tolist()
    return {
      'tokens': [self._without_end(t) for t in tokens],
      'scores': output.sequences_scores.tolist(),
    }

  def _batch(self, requests: Sequence[workload.Request]) -> list[list[int]]:
    """Generates as many tokens as the longest answer needs."""
    output = self._search(requests, 1)
    width = max(len(r.tokens) for r in requests)
    return [self._without_end(a) for a in output.sequences[:, width:].tolist()]

  def _without_end(self, tokens: list[int]) -> list[int]:
    eos = self._job.eos
    return tokens[: tokens.index(eos)] if eos in tokens else tokens

  @torch.inference_mode()
  def _search(
    self, requests: Sequence[workload.Request], hypotheses: int
  ) -> Any:
    """Calls the model's `generate` for several answers to each request."""
    eos = self._job.eos
    width = max(len(r.tokens) for r in requests)
    longest = max(r.max_new for r in requests)
    exact = all(r.exact for r in requests)
    tokens = torch.full((len(requests), width), eos, dtype=torch.long)
    mask = torch.zeros_like(tokens)
    for row, request in enumerate(requests):
      start = width - len(request.tokens)
      tokens[row, start:] = torch.tensor(request.tokens)
      mask[row, start:] = 1
    search = {'early_stopping': True} if self._job.beams > 1 else {}
    return self._model.generate(
      tokens,
      attention_mask=mask,
      num_beams=self._job.beams,
      do_sample=False,
      max_new_tokens=longest,
      min_new_tokens=longest if exact else min(r.min_new for r in requests),
      pad_token_id=eos,
      eos_token_id=eos,
      num_return_sequences=hypotheses,
      return_dict_in_generate=True,
      output_scores=hypotheses > 1,
      **search,
    )
