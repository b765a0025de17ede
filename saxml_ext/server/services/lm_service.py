"""The data service of language models.

Its methods are coroutines on one event loop: a request that waits for the
engine costs a few kilobytes and no thread, so that thousands may be in flight.
When a client cancels, or its deadline passes, gRPC cancels the coroutine, and
with it the scheduler's future.
"""

import asyncio
import contextlib

import grpc
import numpy as np

from saxml_ext.common import errors
from saxml_ext.common import grpc_aio
from saxml_ext.common.security import caller
from saxml_ext.common.telemetry import tracing
from saxml_ext.protobuf import lm_pb2
from saxml_ext.protobuf import lm_pb2_grpc
from saxml_ext.server.lifecycle import lifecycle
from saxml_ext.server.loading import servable as servable_lib
from saxml_ext.server.scheduling import scheduler
from saxml_ext.server.services import calls
from saxml_ext.server.services import extra_inputs
from saxml_ext.server.services import generation
from saxml_ext.server.services import prompts
from saxml_ext.server.services import streamed_answers
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
    method = scheduler.GENERATE
    model = await calls.find(self._models, request.model_key, method, context)
    with calls.Timer(model, method) as timer:
      client = caller.client(context)
      query = await generation.prepare(model, method, request, client)
      result = await self._wakeups.wait(
        model.scheduler.generate(query, calls.deadline(context), client=client)
      )
      with tracing.part('detokenize'):
        texts = await calls.run(
          model.settings.tokenized_output, model.texts, query, result
        )
      timer.succeeded()
    return lm_pb2.GenerateResponse(
      texts=[lm_pb2.DecodedText(text=t, score=s) for t, s in texts]
    )

  @grpc_aio.method()
  async def GenerateStream(
    self, request: lm_pb2.GenerateRequest, context: grpc.aio.ServicerContext
  ) -> None:
    """Continues a prompt and tells the text while it grows.

    A reader that is slow gets fewer and longer messages: while one waits to be
    sent, only the newest state of the answer is kept.
    """
    method = scheduler.STREAM
    model = await calls.find(self._models, request.model_key, method, context)
    with calls.Timer(model, method) as timer:
      client = caller.client(context)
      query = await generation.prepare(model, method, request, client)
      answers = streamed_answers.StreamedAnswers(model, query)
      news = self._wakeups.follow(
        lambda on_progress: model.scheduler.generate(
          query,
          calls.deadline(context),
          on_progress=on_progress,
          client=client,
        )
      )
      async with contextlib.aclosing(news):
        async for each in news:
          if each.is_last:
            last = answers.last(each.state)
            timer.succeeded()
            await calls.write(context, last)
          elif (message := answers.news(each.state)) is not None:
            await calls.write(context, message)

  @grpc_aio.method()
  async def Score(
    self, request: lm_pb2.ScoreRequest, context: grpc.aio.ServicerContext
  ) -> lm_pb2.ScoreResponse:
    """Log-probability of each suffix after the prefix."""
    method = scheduler.SCORE
    model = await calls.find(self._models, request.model_key, method, context)
    with calls.Timer(model, method) as timer:
      settings = model.settings
      extra_inputs.merge(request.extra_inputs, settings.extra_inputs[method])
      if not request.suffix:
        raise errors.InvalidArgument(
          'the request has no suffix to score; send at least one'
        )
      client = caller.client(context)
      # Before time is spent on tokenizing.
      model.scheduler.check_admission(method, client)
      encode = model.codecs.input.encode
      in_place = settings.tokenized_input
      for text in (request.prefix, *request.suffix):
        prompts.check_size(text, settings)
      prefix = prompts.with_start(
        await calls.prepare(in_place, encode, request.prefix), settings
      )
      logps = []
      # One at a time, so that a request holds one place in the queue.
      for text in request.suffix:
        suffix = await calls.prepare(in_place, encode, text)
        prompts.check_score(prefix, suffix, settings)
        future = model.scheduler.score(
          prefix,
          suffix,
          calls.deadline(context),
          client=client,
        )
        logps.append(await self._wakeups.wait(future))
      timer.succeeded()
    return lm_pb2.ScoreResponse(logp=logps)

  @grpc_aio.method()
  async def Embed(
    self, request: lm_pb2.EmbedRequest, context: grpc.aio.ServicerContext
  ) -> lm_pb2.EmbedResponse:
    """Returns the embedding of a text, which is cut as a prompt is."""
    method = scheduler.EMBED
    model = await calls.find(self._models, request.model_key, method, context)
    with calls.Timer(model, method) as timer:
      client = caller.client(context)
      extra_inputs.merge(
        request.extra_inputs, model.settings.extra_inputs[method]
      )
      model.scheduler.check_admission(method, client)
      ids = await _encoded(model, request.text)
      found = await self._wakeups.wait(
        model.scheduler.embed(
          prompts.finish(ids, model.settings),
          calls.deadline(context),
          client=client,
        )
      )
      timer.succeeded()
    return lm_pb2.EmbedResponse(embedding=found.tolist())

  @grpc_aio.method()
  async def Gradient(
    self, request: lm_pb2.GradientRequest, context: grpc.aio.ServicerContext
  ) -> lm_pb2.GradientResponse:
    """Returns gradients of log p(suffix | prefix), each flat, row by row."""
    method = scheduler.GRADIENT
    model = await calls.find(self._models, request.model_key, method, context)
    with calls.Timer(model, method) as timer:
      client = caller.client(context)
      settings = model.settings
      extra_inputs.merge(request.extra_inputs, settings.extra_inputs[method])
      model.scheduler.check_admission(method, client)
      prefix = prompts.with_start(
        await _encoded(model, request.prefix), settings
      )
      suffix = await _encoded(model, request.suffix)
      prompts.check_score(prefix, suffix, settings)
      score, gradients = await self._wakeups.wait(
        model.scheduler.gradient(
          prefix, suffix, calls.deadline(context), client=client
        )
      )
      timer.succeeded()
    response = lm_pb2.GradientResponse(score=[score])
    for name, values in gradients.items():
      response.gradients[name].values.extend(values.ravel().tolist())
    return response


async def _encoded(model: servable_lib.Servable, text: str) -> np.ndarray:
  """Returns the ids of a text, [T] int32."""
  prompts.check_size(text, model.settings)
  return await calls.prepare(
    model.settings.tokenized_input, model.codecs.input.encode, text
  )
