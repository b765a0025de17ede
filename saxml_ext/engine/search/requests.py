"""Converts requests to inputs of device programs, and outputs to results."""

from collections.abc import Sequence
import secrets

import numpy as np

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import request as request_lib
from saxml_ext.engine.search import beam
from saxml_ext.engine.search import pax_beam
from saxml_ext.engine.search import search
from saxml_ext.engine.search import streams
from saxml_ext.engine.search import trace as trace_lib


def options(
  requests: Sequence[request_lib.Request], engine: config_lib.EngineConfig
) -> search.Options:
  """Returns the options of validated requests, one row for each request."""
  settled = [request_lib.settle(r, engine) for r in requests]
  stop_ids = np.full(
    (len(settled), engine.max_stop_ids), search.NO_TOKEN, np.int32
  )
  for row, request in enumerate(settled):
    stop_ids[row, : len(request.stop_ids)] = request.stop_ids
  lengths = np.arange(engine.max_new_tokens + 1)

  def column(name: str, dtype: type[np.generic]) -> np.ndarray:
    return np.asarray([getattr(r, name) for r in settled], dtype)

  return search.Options(
    min_new=column('min_new_tokens', np.int32),
    max_new=column('max_new_tokens', np.int32),
    stop_ids=stop_ids,
    rows=column('rows', np.int32),
    sampled=~column('beam_search', np.bool_),
    norms=np.asarray(
      [length_norm(r, engine, lengths) for r in settled], np.float32
    ),
    early_stopping=np.asarray([_early_stopping(r) for r in settled], np.int32),
    alternatives=np.asarray([bool(r.logprobs) for r in settled]),
    temperature=column('temperature', np.float32),
    top_k=np.maximum(column('top_k', np.int32), 0),
    top_p=column('top_p', np.float32),
    seed=np.asarray(
      [secrets.randbits(32) if r.seed is None else r.seed for r in requests],
      np.uint32,
    ),
  )


def length_norm(
  request: request_lib.Settled,
  engine: config_lib.EngineConfig,
  length: np.ndarray,
) -> np.ndarray:
  """Returns the divisors of sums of log-probabilities, in float64.

  The divisor is 1 for samples, because they are ranked by probability alone.

  Args:
    request: The request, with all its settings.
    engine: The configuration of the engine.
    length: The lengths at which the divisors apply.
  """
  if not request.beam_search:
    return np.ones_like(length, np.float64)
  if engine.search == 'pax':
    return pax_beam.length_norm(length, engine.length_norm_alpha)
  return beam.length_norm(length, request.length_penalty)


def _early_stopping(request: request_lib.Settled) -> int:
  chosen = request.early_stopping
  # If scores fall with the length, the present length is the most favorable.
  if chosen == 'never' and request.length_penalty <= 0:
    chosen = False
  return search.EARLY_STOPPING[chosen]


def result(
  request: request_lib.Settled,
  engine: config_lib.EngineConfig,
  kept: trace_lib.Kept,
  trace: trace_lib.Trace,
) -> request_lib.Result:
  """Returns the answers to a request.

  Args:
    request: The request that was decoded.
    engine: The configuration of the engine that decoded it.
    kept: The answers of its slot, on the host, without the leading axis S.
    trace: The trace of its slot, on the host, without the leading axis S.
  """
  norms = length_norm(request, engine, kept.lengths)
  order = np.argsort(-kept.scores, kind='stable')
  hypotheses = []
  for i in (int(i) for i in order if kept.present[i]):
    path = trace_lib.path(trace, kept, i)
    score = float(kept.scores[i])
    hypotheses.append(
      request_lib.Hypothesis(
        path.tokens,
        score,
        score * float(norms[i]),
        *_logprobs(request, path),
        row=0 if request.beam_search else i,
      )
    )
  return request_lib.Result(tuple(hypotheses))


def progress(
  request: request_lib.Settled, stream: streams.Stream
) -> request_lib.Progress:
  """Returns the tokens of a request's answers that can no longer change."""
  return request_lib.Progress(
    tuple(
      request_lib.Partial(
        path.tokens,
        finished,
        float(path.logprobs.sum(dtype=np.float64)),
        *_logprobs(request, path),
      )
      for path, finished in stream.paths()
    )
  )


def _logprobs(
  request: request_lib.Settled, path: trace_lib.Path
) -> tuple[np.ndarray | None, request_lib.Alternatives | None]:
  """Returns the log-probabilities and alternatives that a request asks for."""
  if request.logprobs is None:
    return None, None
  if not request.logprobs or path.alternatives is None:
    return path.logprobs, None
  ids, logprobs = (x[:, : request.logprobs] for x in path.alternatives)
  return path.logprobs, (ids, logprobs)
