"""Runs llama.cpp in a worker, with a package that was built for this machine.

The package is no part of the program, because its build must use the
instructions of the processor that it is measured on.
"""

from collections.abc import Sequence
import concurrent.futures
import importlib.metadata
import multiprocessing
import os
import sys
from typing import Any

import numpy as np

from benchmarks import models
from benchmarks import workload
from benchmarks.workers import service
from benchmarks.workers import trials

_DISTRIBUTION = 'llama_cpp_python'
# llama.cpp's default sizes of a batch: of a call, and of its products.
_BATCH, _PRODUCT = 2048, 512


class LlamaCpp:
  """llama_decode with one sequence for each request, and greedy choices."""

  kv = 'float16'  # The default of llama.cpp.

  def convert(self, job: service.Job) -> None:
    if job.beams != 1:
      raise ValueError('llama.cpp has no beam search. Use --modes=greedy.')
    self._path = models.derived(job.cache, job.model, f'{job.dtype}.gguf')
    if os.path.exists(self._path):
      return
    # A separate process keeps the memory of the conversion out of this one.
    context = multiprocessing.get_context('spawn')
    with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
      pool.submit(_convert, job.model, self._path, job.dtype).result()

  def load(self, job: service.Job) -> None:
    """Loads the model.

    Raises:
      ImportError: The directory does not have llama-cpp-python.
      RuntimeError: llama.cpp cannot load the model.
    """
    self._job = job
    self._llama = library = _import(job.llama_cpp)
    library.llama_backend_init()
    self._model = library.llama_model_load_from_file(
      self._path.encode(), library.llama_model_default_params()
    )
    settings = library.llama_context_default_params()
    self._slots = min(job.slots, len(job.requests))
    longest = max(len(r.tokens) + r.max_new for r in job.requests)
    settings.n_seq_max = self._slots
    settings.n_ctx = self._slots * longest
    settings.n_batch, settings.n_ubatch = _BATCH, _PRODUCT
    settings.n_threads = settings.n_threads_batch = job.threads
    self._context = self._model and library.llama_init_from_model(
      self._model, settings
    )
    if not self._context:
      raise RuntimeError(f'llama.cpp cannot load {self._path}.')
    self._memory = library.llama_get_memory(self._context)
    self._batch = library.llama_batch_init(_BATCH, 0, 1)
    self._vocab = library.llama_vocab_n_tokens(
      library.llama_model_get_vocab(self._model)
    )

  def prepare(self) -> str:
    first = self._job.requests[: self._slots]
    self.generate(trials.shortened(first, self._job.trial_new_tokens))
    version = importlib.metadata.version(_DISTRIBUTION)
    system = self._llama.llama_print_system_info().decode().strip(' |')
    return f'{self._slots} slots, llama-cpp-python {version}, {system}'

  def generate(self, requests: Sequence[workload.Request]) -> list[list[int]]:
    answers: list[list[int]] = []
    for begin in range(0, len(requests), self._slots):
      answers += self._together(requests[begin : begin + self._slots])
    return answers

  def _together(self, requests: Sequence[workload.Request]) -> list[list[int]]:
    """Prefills all prompts, and then decodes all answers in step."""
    self._llama.llama_memory_clear(self._memory, False)
    answers: list[list[int]] = [[] for _ in requests]
    for begin, group in _groups([len(r.tokens) for r in requests]):
      last = []
      entries = []
      for row, request in enumerate(requests[begin : begin + group], begin):
        end = len(request.tokens) - 1
        for position, token in enumerate(request.tokens):
          entries.append((token, position, row, position == end))
        last.append(row)
      for row, token in zip(last, self._decode(entries), strict=True):
        answers[row].append(token)
    while True:
      rows = [
        row
        for row, request in enumerate(requests)
        if len(answers[row]) < request.max_new
      ]
      if not rows:
        return answers
      entries = [
        (
          answers[row][-1],
          len(requests[row].tokens) + len(answers[row]) - 1,
          row,
          True,
        )
        for row in rows
      ]
      for row, token in zip(rows, self._decode(entries), strict=True):
        answers[row].append(token)

  def _decode(self, entries: Sequence[tuple[int, int, int, bool]]) -> list[int]:
    """Computes (token, position, row, has_logits); returns the top tokens."""
    batch = self._batch
    batch.n_tokens = len(entries)
    for i, (token, position, row, has_logits) in enumerate(entries):
      batch.token[i] = token
      batch.pos[i] = position
      batch.n_seq_id[i] = 1
      batch.seq_id[i][0] = row
      batch.logits[i] = has_logits
    if code := self._llama.llama_decode(self._context, batch):
      raise RuntimeError(f'llama_decode returned {code}.')
    tokens = []
    for i, (_, _, _, has_logits) in enumerate(entries):
      if has_logits:
        logits = self._llama.llama_get_logits_ith(self._context, i)
        values = np.ctypeslib.as_array(logits, (self._vocab,))
        tokens.append(int(values.argmax()))
    return tokens


def _groups(lengths: Sequence[int]) -> list[tuple[int, int]]:
  """Returns (first prompt, number of prompts) of each batch of prompts."""
  groups: list[tuple[int, int]] = []
  tokens = 0
  for index, length in enumerate(lengths):
    if length > _BATCH:
      raise ValueError(f'llama.cpp gets at most {_BATCH} tokens in a prompt.')
    if groups and tokens + length <= _BATCH:
      begin, count = groups.pop()
      groups.append((begin, count + 1))
    else:
      groups.append((index, 1))
      tokens = 0
    tokens += length
  return groups


def _import(directory: str | None) -> Any:
  """Imports llama_cpp from the directory, after this program's packages.

  Raises:
    ImportError: The directory does not have the package.
  """
  sys.path.append(directory or '')
  try:
    import llama_cpp  # pylint: disable=g-import-not-at-top
  except ImportError as error:
    raise ImportError(
      f'--llama_cpp={directory} does not have llama-cpp-python ({error}). Build'
      ' it with the command in docs/benchmarks.md.'
    ) from error
  return llama_cpp


def _convert(model: str, path: str, dtype: str) -> None:
  # gguf imports many modules, which only the conversion needs.
  from benchmarks.workers import gguf_file  # pylint: disable=g-import-not-at-top

  gguf_file.write(model, path, dtype)


if __name__ == '__main__':
  service.serve(LlamaCpp())
