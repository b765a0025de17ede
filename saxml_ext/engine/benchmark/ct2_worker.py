"""Worker: CTranslate2."""

from collections.abc import Sequence
import json
import multiprocessing
import os
import shutil

import ctranslate2
import numpy as np

from saxml_ext.engine.benchmark import batching
from saxml_ext.engine.benchmark import models
from saxml_ext.engine.benchmark import service
from saxml_ext.engine.benchmark import workload

_ORDERS = ("output", "prompt", "both", "equal")
# It takes a batch's prompts together up to the shortest one's end, and from
# there on token by token: uneven prompts are at their best in tiny batches.
_SIZES = (1, 2, 4, 8, 16, 32)


class CTranslate2:
  """generate_batch over batches that trials have shown to be its fastest."""

  def convert(self, job: service.Job) -> None:
    self._path = models.derived(job.cache, job.model, "ct2")
    if os.path.isdir(self._path):
      return
    # In a process of its own: it needs PyTorch, whose memory is not
    # CTranslate2's.
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_convert, args=(job.model, self._path))
    process.start()
    process.join()
    if process.exitcode:
      raise RuntimeError(
          f"the conversion ended with code {process.exitcode}; the log says why"
      )

  def load(self, job: service.Job) -> None:
    self._job = job
    self._generator = ctranslate2.Generator(
        self._path,
        device="cpu",
        compute_type=job.dtype,
        inter_threads=1,
        intra_threads=job.threads,
    )
    path = os.path.join(self._path, "vocabulary.json")
    with open(path, encoding="utf-8") as file:
      self._words = json.load(file)

  def prepare(self) -> str:
    requests = self._job.requests
    shortest = min(requests, key=lambda r: len(r.tokens) + r.max_new)
    self._batch([shortest])
    self._batching = batching.choose(requests, _ORDERS, _SIZES, self._batch)
    return str(self._batching)

  def generate(self, requests: Sequence[workload.Request]) -> list[list[int]]:
    return batching.run(requests, self._batching, self._batch)

  def top1(
      self, sequences: Sequence[Sequence[int]], starts: Sequence[int]
  ) -> list[list[int]]:
    """The likeliest token at each place from `starts` on, the past given."""
    result = []
    for sequence, start in zip(sequences, starts):
      logits = self._generator.forward_batch([list(sequence)])
      best = np.asarray(logits)[0, start - 1 : -1].argmax(-1)
      result.append(best.tolist())
    return result

  def _batch(self, requests: Sequence[workload.Request]) -> list[list[int]]:
    """Generates as many tokens as the longest answer needs.

    A batch has one limit; what exceeds a shorter request is cut off later.
    """
    limits = [r.max_new for r in requests]
    longest = max(limits)
    exact = all(r.exact for r in requests)
    options = {}
    if self._job.beams == 1 and min(limits) < longest:
      # It can end answers one by one, in greedy search alone.
      options["callback"] = lambda s: s.step + 1 >= limits[s.batch_id]
    results = self._generator.generate_batch(
        [[self._words[t] for t in r.tokens] for r in requests],
        beam_size=self._job.beams,
        patience=1,
        length_penalty=1,
        max_length=longest,
        min_length=longest if exact else min(r.min_new for r in requests),
        end_token=[self._job.eos],
        include_prompt_in_result=False,
        max_batch_size=0,
        **options,
    )
    return [r.sequences_ids[0] for r in results]


def _convert(model: str, path: str) -> None:
  scratch = path + ".partial"
  ctranslate2.converters.TransformersConverter(model).convert(
      scratch, force=True
  )
  shutil.rmtree(path, ignore_errors=True)
  os.rename(scratch, path)


if __name__ == "__main__":
  service.serve(CTranslate2())
