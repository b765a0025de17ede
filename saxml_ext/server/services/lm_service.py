"""The data service of language models.

Its methods are coroutines on one event loop: a request that waits for the
engine costs a few kilobytes and no thread, so that thousands may be in flight.
When a client cancels, or its deadline passes, gRPC cancels the coroutine, and
with it the scheduler's future.
"""

import asyncio
from collections.abc import Callable
import math
import time
from typing import Any

import grpc

from saxml_ext.common import errors
from saxml_ext.common import grpc_aio
from saxml_ext.common.security import access
from saxml_ext.engine import request as request_lib
from saxml_ext.protobuf import lm_pb2
from saxml_ext.protobuf import lm_pb2_grpc
from saxml_ext.server.loading import lifecycle
from saxml_ext.server.loading import servable as servable_lib
from saxml_ext.server.scheduling import scheduler
from saxml_ext.server.services import extra_inputs
from saxml_ext.server.services import prompts
from saxml_ext.server.services import wakeups


class LMService(lm_pb2_grpc.LMServiceServicer):
  """sax.server.lm.LMService over the loaded models."""

  def __init__(self, models: lifecycle.Models[servable_lib.Servable]):
    """Creates it; call on the event loop that will serve."""
    self._models = models
    self._wakeups = wakeups.Wakeups(asyncio.get_running_loop())

  @grpc_aio.method()
  async def Generate(
    self, request: lm_pb2.GenerateRequest, context: grpc.aio.ServicerContext
  ) -> lm_pb2.GenerateResponse:
    """Continues a prompt."""
    model = self._find(context, request.model_key, scheduler.GENERATE)
    with _Timer(model, scheduler.GENERATE) as timer:
      settings = model.settings
      extra = extra_inputs.merge(
        request.extra_inputs, settings.extra_inputs[scheduler.GENERATE]
      )
      limit = extra_inputs.max_new_tokens(extra, settings.engine.max_new_tokens)
      model.scheduler.check_admission(scheduler.GENERATE)
      ids = await _run(
        settings.tokenized_input, model.input_codec.encode, request.text
      )
      query = request_lib.Request(
        tokens=prompts.finish(ids, settings),
        max_new_tokens=limit,
        min_new_tokens=min(settings.engine.min_new_tokens, limit),
        **extra_inputs.choices(extra, settings),
      )
      result = await self._wakeups.wait(
        model.scheduler.generate(query, _deadline(context))
      )
      texts = await _run(settings.tokenized_output, model.texts, query, result)
      timer.succeeded()
    return lm_pb2.GenerateResponse(
      texts=[lm_pb2.DecodedText(text=t, score=s) for t, s in texts]
    )

  @grpc_aio.method()
  async def Score(
    self, request: lm_pb2.ScoreRequest, context: grpc.aio.ServicerContext
  ) -> lm_pb2.ScoreResponse:
    """Log-probability of each suffix after the prefix."""
    model = self._find(context, request.model_key, scheduler.SCORE)
    with _Timer(model, scheduler.SCORE) as timer:
      settings = model.settings
      extra_inputs.merge(
        request.extra_inputs, settings.extra_inputs[scheduler.SCORE]
      )
      if not request.suffix:
        raise errors.InvalidArgument(
          'the request has no suffix to score; send at least one'
        )
      encode = model.input_codec.encode
      in_place = settings.tokenized_input
      prefix = prompts.with_start(
        await _run(in_place, encode, request.prefix), settings
      )
      logps = []
      # One at a time, so that a request holds one place in the queue.
      for text in request.suffix:
        suffix = await _run(in_place, encode, text)
        prompts.check_score(prefix, suffix, settings)
        future = model.scheduler.score(prefix, suffix, _deadline(context))
        logps.append(await self._wakeups.wait(future))
      timer.succeeded()
    return lm_pb2.ScoreResponse(logp=logps)

  @grpc_aio.method()
  async def GenerateStream(
    self, request: lm_pb2.GenerateRequest, context: grpc.aio.ServicerContext
  ) -> None:
    """Refused: an answer of beam search is certain at its end only."""
    self._find(context, request.model_key, 'lm.generate_stream')

  @grpc_aio.method()
  async def Embed(
    self, request: lm_pb2.EmbedRequest, context: grpc.aio.ServicerContext
  ) -> None:
    """Refused: the models of this server compute no embeddings."""
    self._find(context, request.model_key, 'lm.embed')

  @grpc_aio.method()
  async def Gradient(
    self, request: lm_pb2.GradientRequest, context: grpc.aio.ServicerContext
  ) -> None:
    """Refused: the models of this server compute no gradients."""
    self._find(context, request.model_key, 'lm.gradient')

  def _find(
    self, context: grpc.aio.ServicerContext, key: str, method: str
  ) -> servable_lib.Servable:
    """Returns the model for a call of a method.

    Raises:
      errors.NotFound: it does not serve.
      errors.InvalidArgument: it does not have the method.
      errors.PermissionDenied: an ACL does not admit the caller.
    """
    found = self._models.serving(key)
    methods = found.model.settings.methods
    if method not in methods:
      served = ', '.join(methods)
      raise errors.InvalidArgument(
        f'{key} does not serve {method}; it serves {served}'
      )
    acl = found.spec.acls.get(method, '')
    access.check(context, acl, f'{method} of {key}')
    return found.model


class _Timer:
  """Counts a call as answered after so long, or as failed."""

  def __init__(self, model: servable_lib.Servable, method: str):
    self._stats = model.method_stats[method]
    self._begin = time.monotonic()
    self._succeeded = False

  def __enter__(self) -> '_Timer':
    return self

  def succeeded(self) -> None:
    self._succeeded = True

  def __exit__(self, *exc_info) -> None:
    if self._succeeded:
      self._stats.succeeded(time.monotonic() - self._begin)
    else:
      self._stats.failed()


def _deadline(context: grpc.aio.ServicerContext) -> float:
  """The call's deadline on the monotonic clock; inf without one."""
  remaining = context.time_remaining()
  return math.inf if remaining is None else time.monotonic() + remaining


async def _run(in_place: bool, function: Callable[..., Any], *args) -> Any:
  """Calls a function, on a thread unless it is quick enough to do in place.

  A tokenizer takes about a millisecond for an article and lets go of the
  interpreter meanwhile; ids as text are read in a few dozen microseconds.
  """
  if in_place:
    return function(*args)
  return await asyncio.to_thread(function, *args)
