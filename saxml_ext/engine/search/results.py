"""Answers, and what is certain of them, as a Runner's owner gets them."""

import numpy as np

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import request as request_lib
from saxml_ext.engine.search import request_options
from saxml_ext.engine.search import streams
from saxml_ext.engine.search import trace as trace_lib


def result(
  request: request_lib.Settled,
  engine: config_lib.EngineConfig,
  kept: trace_lib.Kept,
  trace: trace_lib.Trace,
) -> request_lib.Result:
  """The answers to a request.

  Args:
    request: that was decoded.
    engine: by which.
    kept: of its slot, on the host, without the leading axis S.
    trace: likewise.
  """
  norms = request_options.length_norm(request, engine, kept.lengths)
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
  """What is certain of the answers to a request."""
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
  """What a request wants to know of its tokens' log-probabilities."""
  if request.logprobs is None:
    return None, None
  if not request.logprobs or path.alternatives is None:
    return path.logprobs, None
  ids, logprobs = (x[:, : request.logprobs] for x in path.alternatives)
  return path.logprobs, (ids, logprobs)
