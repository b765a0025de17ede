"""Runs CTranslate2 in a worker.

CTranslate2 selects its library of matrix products when it is imported. This
process therefore imports it only in `open`, after the library was chosen.
Earlier uses of CTranslate2 run in separate processes.
"""

from collections.abc import Callable, Sequence
from concurrent import futures
import dataclasses
import importlib.metadata
import json
import multiprocessing
import os
import re
import sys
from typing import Any, TypeVar

import numpy as np

from benchmarks import models
from benchmarks import workload
from benchmarks.workers import batching
from benchmarks.workers import service
from benchmarks.workers import trials
from saxml_ext.common import files

_T = TypeVar('_T')

_MODULE = 'ctranslate2'
# The worker's log is its standard error.
_LOG = 2
_USED = re.compile(r' - (Selected ISA|S?GEMM\w* backend): (\w+)')
_USE_MKL = 'CT2_USE_MKL'
_ORDERS = ('output', 'prompt', 'both', 'equal')
# CTranslate2 processes the prompts of a batch together only up to the end of
# the shortest one, and then token by token. Prompts of different lengths are
# therefore fastest in very small batches.
_SIZES = (1, 2, 4, 8, 16, 32)


# Maps CTranslate2's libraries of matrix products to the values of CT2_USE_MKL
# that select them. By default, it uses MKL only on Intel's processors.
_BACKENDS = {'MKL': '1', 'oneDNN': '0'}
# The names of the libraries in the log.
_LOGGED = {'MKL': 'MKL', 'oneDNN': 'DNNL'}
# Maps each dtype to the compute types with weights of the same size.
_COMPUTE_TYPES = {
  'float32': ('float32',),
  'bfloat16': ('bfloat16',),
  'int8': ('int8_float32', 'int8_bfloat16'),
}


@dataclasses.dataclass(frozen=True)
class _Variant:
  """A way to compute: a key of _BACKENDS, and one of its compute types."""

  backend: str
  compute_type: str

  def __str__(self) -> str:
    return f'{self.backend} {self.compute_type}'


class CTranslate2:
  """The generate_batch of CTranslate2, with the fastest settings.

  Trials choose its library of matrix products, its compute type and the
  grouping of requests into batches.
  """

  def convert(self, job: service.Job) -> None:
    name, convert = 'ct2', _convert
    if job.dtype == 'int8':
      name, convert = 'ct2-int8', _convert_int8
    self._path = models.derived(job.cache, job.model, name)
    if not os.path.isdir(self._path):
      # The conversion needs PyTorch. A separate process keeps PyTorch's memory
      # out of this one.
      _apart(convert, job.model, self._path)
    variants = [
      _Variant(backend, compute_type)
      for backend in _BACKENDS
      for compute_type in _apart(_compute_types, job.dtype)
    ]
    self._variant = self._chosen(job, variants, self._fastest(job))

  def _fastest(
    self, job: service.Job
  ) -> Callable[[Sequence[_Variant]], _Variant]:
    return lambda variants: trials.fastest(
      variants,
      # A process can choose its library only once.
      lambda variant: _apart(_rate, self._path, job, variant),
    )

  def _chosen(
    self,
    job: service.Job,
    candidates: Sequence[_T],
    choose: Callable[[Sequence[_T]], _T],
  ) -> _T:
    """Calls `choose`; for a large model, reuses an earlier choice."""
    if job.trial_new_tokens is None:
      return choose(candidates)
    lengths = [(len(r.tokens), r.min_new, r.max_new) for r in job.requests]
    kind = type(candidates[0]).__name__
    version = importlib.metadata.version(_MODULE)
    key = (version, self._path, job.dtype, job.beams)
    return trials.kept(
      job.cache, (*key, job.threads, lengths, kind), candidates, choose
    )

  def load(self, job: service.Job) -> None:
    self.open(self._path, job, self._variant)

  def open(self, path: str, job: service.Job, variant: _Variant) -> None:
    """Loads a converted model with the variant's library.

    Raises:
      ValueError: This processor does not support the compute type.
      RuntimeError: CTranslate2 was already imported.
    """
    self._job = job
    self._variant = variant
    if _MODULE in sys.modules:
      raise RuntimeError(
        f'{_MODULE} was imported before {variant.backend} was chosen. Open only'
        ' one model per process, and do not import CTranslate2 before.'
      )
    os.environ[_USE_MKL] = _BACKENDS[variant.backend]
    os.environ['CT2_VERBOSE'] = '1'  # The log names the library in use.
    begin = os.fstat(_LOG).st_size
    import ctranslate2  # pylint: disable=g-import-not-at-top

    self._generator = ctranslate2.Generator(
      path,
      device='cpu',
      compute_type=variant.compute_type,
      inter_threads=1,
      intra_threads=job.threads,
    )
    if self._generator.compute_type != variant.compute_type:
      # CTranslate2 falls back to the nearest type, which is another candidate.
      raise ValueError(
        f'CTranslate2 does not support {variant.compute_type} here. It falls'
        f' back to {self._generator.compute_type}.'
      )
    self._used = _check_used(begin, variant)
    # CTranslate2 computes all but the products in the type after "int8_".
    self.kv = variant.compute_type.removeprefix('int8_')
    with open(os.path.join(path, 'vocabulary.json'), encoding='utf-8') as file:
      self._words = json.load(file)

  def prepare(self) -> str:
    requests = self._job.requests
    shortest = min(requests, key=lambda r: len(r.tokens) + r.max_new)
    self.batch(trials.shortened([shortest], self._job.trial_new_tokens))
    self._batching = self._chosen(
      self._job,
      [
        batching.Batching(o, s)
        for o in _ORDERS
        for s in (*_SIZES, len(requests))
      ],
      lambda _: batching.choose(
        requests, _ORDERS, _SIZES, self.batch, self._job.trial_new_tokens
      ),
    )
    return f'{self._variant}, {self._used}, {self._batching}'

  def generate(self, requests: Sequence[workload.Request]) -> list[list[int]]:
    return batching.run(requests, self._batching, self.batch)

  def top1(
    self, sequences: Sequence[Sequence[int]], starts: Sequence[int]
  ) -> list[list[int]]:
    """Returns the most likely token at each position from `starts` on."""
    result = []
    for sequence, start in zip(sequences, starts):
      logits = self._generator.forward_batch([list(sequence)])
      best = np.asarray(logits)[0, start - 1 : -1].argmax(-1)
      result.append(best.tolist())
    return result

  def n_best(self) -> service.NBest:
    """Returns all beams of the first request."""
    (result,) = self._search(self._job.requests[:1], self._job.beams)
    return {'tokens': result.sequences_ids, 'scores': result.scores}

  def batch(self, requests: Sequence[workload.Request]) -> list[list[int]]:
    """Generates as many tokens as the longest answer needs.

    A batch has one limit. Longer answers to shorter requests are cut later.
    """
    return [r.sequences_ids[0] for r in self._search(requests, 1)]

  def _search(
    self, requests: Sequence[workload.Request], hypotheses: int
  ) -> Sequence[Any]:
    """Answers requests like `batch`, with several answers for each."""
    limits = [r.max_new for r in requests]
    longest = max(limits)
    exact = all(r.exact for r in requests)
    options = {}
    if self._job.beams == 1 and min(limits) < longest:
      # CTranslate2 can end single answers of a batch only in greedy search.
      options['callback'] = lambda s: s.step + 1 >= limits[s.batch_id]
    return self._generator.generate_batch(
      [[self._words[t] for t in r.tokens] for r in requests],
      beam_size=self._job.beams,
      patience=1,
      length_penalty=1,
      max_length=longest,
      min_length=longest if exact else min(r.min_new for r in requests),
      end_token=[self._job.eos],
      include_prompt_in_result=False,
      max_batch_size=0,
      num_hypotheses=hypotheses,
      return_scores=True,
      **options,
    )


def _check_used(begin: int, variant: _Variant) -> str:
  """Returns the instructions and the library that CTranslate2 reports.

  Args:
    begin: The size of the log before CTranslate2 wrote to it.
    variant: The variant that it must use.

  Raises:
    RuntimeError: The log names another library for matrix products.
  """
  with open(f'/proc/self/fd/{_LOG}', 'rb') as file:
    file.seek(begin)
    log = file.read().decode(errors='replace')
  used_by_kind = dict(_USED.findall(log))
  kind = 'GEMM_S8' if variant.compute_type.startswith('int8') else 'SGEMM'
  used = used_by_kind.get(f'{kind} backend')
  if used != _LOGGED[variant.backend]:
    raise RuntimeError(
      f'CTranslate2 was to use {variant.backend} for {kind}, but its log has'
      f' {used_by_kind}.'
    )
  return f'ISA {used_by_kind["Selected ISA"]}, {kind} by {used}'


def _compute_types(dtype: str) -> Sequence[str]:
  """Returns the compute types of a dtype that this processor supports.

  If it supports none, all are returned. Loading a model would then report the
  missing type, but loading may take minutes.
  """
  import ctranslate2  # pylint: disable=g-import-not-at-top

  here = ctranslate2.get_supported_compute_types('cpu')
  types = _COMPUTE_TYPES[dtype]
  return [name for name in types if name in here] or types


def _apart(function: Callable[..., _T], *args) -> _T:
  """Calls a function in a separate process."""
  context = multiprocessing.get_context('spawn')
  with futures.ProcessPoolExecutor(1, context) as pool:
    return pool.submit(function, *args).result()


def _convert(model: str, path: str) -> None:
  import ctranslate2  # pylint: disable=g-import-not-at-top

  with files.new_directory(path, replace=True) as unfinished:
    ctranslate2.converters.TransformersConverter(model).convert(
      unfinished, force=True
    )


def _convert_int8(model: str, path: str) -> None:
  # This module imports CTranslate2, so it is imported only here.
  from benchmarks.workers import ct2_int8  # pylint: disable=g-import-not-at-top

  ct2_int8.convert(model, path)


def _rate(path: str, job: service.Job, variant: _Variant) -> float:
  """Returns the tokens per CPU second of a variant, from a short trial."""
  engine = CTranslate2()
  engine.open(path, job, variant)
  requests = trials.sample(job.requests, job.trial_new_tokens)
  # The first call allocates memory, so it is not measured.
  engine.batch(requests[:1])
  return trials.rate([requests], engine.batch)


if __name__ == '__main__':
  service.serve(CTranslate2())
