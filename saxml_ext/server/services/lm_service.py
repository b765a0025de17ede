"""The data service of language models.

Its methods are coroutines on one event loop. A request that waits for the
engine needs a few kilobytes and no thread, so thousands can be in flight. When
a client cancels, or its deadline passes, gRPC cancels the coroutine. This also
cancels the scheduler's future.
"""

import asyncio
from collections.abc import Sequence
import contextlib
from typing import Any

import grpc

from saxml_ext.common import errors
from saxml_ext.common import grpc_aio
from saxml_ext.common.telemetry import tracing
from saxml_ext.engine import request as request_lib
from saxml_ext.protobuf import common_pb2
from saxml_ext.protobuf import lm_pb2
from saxml_ext.protobuf import lm_pb2_grpc
from saxml_ext.server.loading import servable as servable_lib
from saxml_ext.server.scheduling import scheduler
from saxml_ext.server.services import calls
from saxml_ext.server.services import prompts
from saxml_ext.server.services import requests


class LMService(lm_pb2_grpc.LMServiceServicer):
  """Serves sax.server.lm.LMService with the loaded models."""

  def __init__(self, models: calls.Models):
    """Creates the service; call this on the event loop that will serve."""
    self._models = models
    self._wakeups = calls.Wakeups(asyncio.get_running_loop())

  @grpc_aio.method()
  async def Generate(
    self, request: lm_pb2.GenerateRequest, context: grpc.aio.ServicerContext
  ) -> lm_pb2.GenerateResponse:
    """Continues a prompt."""
    async with self._call(request, scheduler.GENERATE, context) as call:
      model = call.model
      query = await requests.generation(call, request)
      result = await self._wakeups.wait(
        model.scheduler.generate(query, call.deadline, client=call.client)
      )
      with tracing.part('detokenize'):
        texts = await calls.run(
          call.settings.tokenized_output, model.texts, query, result
        )
    return lm_pb2.GenerateResponse(
      texts=[lm_pb2.DecodedText(text=t, score=s) for t, s in texts]
    )

  @grpc_aio.method()
  async def GenerateStream(
    self, request: lm_pb2.GenerateRequest, context: grpc.aio.ServicerContext
  ) -> None:
    """Continues a prompt and sends the text while it grows.

    A slow reader gets fewer and longer messages. While a message waits to be
    sent, only the newest state of the answer is kept.
    """
    async with self._call(request, scheduler.STREAM, context) as call:
      query = await requests.generation(call, request)
      answers = StreamedAnswers(call.model, query)
      updates = self._wakeups.follow(
        lambda on_progress: call.model.scheduler.generate(
          query, call.deadline, on_progress=on_progress, client=call.client
        )
      )
      async with contextlib.aclosing(updates):
        async for update in updates:
          if update.is_last:
            last = answers.last(update.state)
            call.succeeded()
            await calls.write(context, last)
          elif (message := answers.next(update.state)) is not None:
            await calls.write(context, message)

  @grpc_aio.method()
  async def Score(
    self, request: lm_pb2.ScoreRequest, context: grpc.aio.ServicerContext
  ) -> lm_pb2.ScoreResponse:
    """Returns the log-probability of each suffix after the prefix."""
    async with self._call(request, scheduler.SCORE, context) as call:
      if not request.suffix:
        raise errors.InvalidArgument(
          'the request has no suffix to score. Send at least one.'
        )
      _check_inputs(call, request.extra_inputs)
      for text in request.suffix:
        prompts.check_size(text, call.settings)
      prefix = await prompts.encode(call.model, request.prefix, start=True)
      logps = []
      # The suffixes are scored one at a time, so that a request occupies only
      # one place in the queue.
      for text in request.suffix:
        suffix = await prompts.encode(call.model, text)
        prompts.check_score(prefix, suffix, call.settings)
        future = call.model.scheduler.score(
          prefix, suffix, call.deadline, call.client
        )
        logps.append(await self._wakeups.wait(future))
    return lm_pb2.ScoreResponse(logp=logps)

  @grpc_aio.method()
  async def Embed(
    self, request: lm_pb2.EmbedRequest, context: grpc.aio.ServicerContext
  ) -> lm_pb2.EmbedResponse:
    """Returns the embedding of a text, which is truncated like a prompt."""
    async with self._call(request, scheduler.EMBED, context) as call:
      _check_inputs(call, request.extra_inputs)
      ids = await prompts.encode(call.model, request.text)
      tokens = prompts.truncate(ids, call.model)
      embedding = await self._wakeups.wait(
        call.model.scheduler.embed(tokens, call.deadline, call.client)
      )
    return lm_pb2.EmbedResponse(embedding=embedding.tolist())

  @grpc_aio.method()
  async def Gradient(
    self, request: lm_pb2.GradientRequest, context: grpc.aio.ServicerContext
  ) -> lm_pb2.GradientResponse:
    """Returns gradients of log p(suffix | prefix), flattened row by row."""
    async with self._call(request, scheduler.GRADIENT, context) as call:
      _check_inputs(call, request.extra_inputs)
      prefix = await prompts.encode(call.model, request.prefix, start=True)
      suffix = await prompts.encode(call.model, request.suffix)
      prompts.check_score(prefix, suffix, call.settings)
      score, gradients = await self._wakeups.wait(
        call.model.scheduler.gradient(
          prefix, suffix, call.deadline, call.client
        )
      )
    response = lm_pb2.GradientResponse(score=[score])
    for name, values in gradients.items():
      response.gradients[name].values.extend(values.ravel().tolist())
    return response

  def _call(
    self, request: Any, method: str, context: grpc.aio.ServicerContext
  ) -> calls.Call:
    return calls.Call(self._models, request.model_key, method, context)


def _check_inputs(call: calls.Call, given: common_pb2.ExtraInputs) -> None:
  """Checks extra inputs and admission before time is spent on tokenizing."""
  requests.merge(given, call.settings.extra_inputs[call.method])
  call.check_admission(call.method)


class StreamedAnswers:
  """Converts the engine's progress to messages of Sax's GenerateStream.

  A message contains the new text of each sample, always in the same order. Text
  that was sent is never taken back (see `vocabulary.growing_text`). So
  `prefix_len` is always the length of the text sent before. It is a number of
  UTF-8 bytes, because stock clients cut the text at this number of bytes. The
  scores are the changes of each sample's score, because stock saxutil adds them
  up.

  Samples keep the engine's order. A beam search has one item until the last
  message: the text with which the best hypothesis certainly begins. The last
  message has all hypotheses, best first.
  """

  def __init__(
    self, model: servable_lib.Servable, request: request_lib.Request
  ):
    """Starts without any sent text."""
    self._model = model
    self._request = request
    self._rows: list[_Row] = []

  def next(
    self, progress: request_lib.Progress
  ) -> lm_pb2.GenerateStreamResponse | None:
    """Returns the message of a progress, or None if no text has grown.

    Args:
      progress: The progress of the engine, which must extend the previous one.
    """
    items = [
      self._row(i).grow(part.tokens, part.score)
      for i, part in enumerate(progress.rows)
    ]
    if not any(item.text for item in items):
      # The scores are sent with the next text.
      for row, item in zip(self._rows, items):
        row.score -= item.scores[0]
      return None
    return lm_pb2.GenerateStreamResponse(items=items)

  def last(self, result: request_lib.Result) -> lm_pb2.GenerateStreamResponse:
    """Returns the message that completes the answers of the engine's result."""
    hypotheses = list(result.hypotheses)
    if self._is_sampled():
      hypotheses.sort(key=lambda hypothesis: hypothesis.row)
    return lm_pb2.GenerateStreamResponse(
      items=[
        self._row(i).finish(hypothesis.tokens, hypothesis.score)
        for i, hypothesis in enumerate(hypotheses)
      ]
    )

  def _is_sampled(self) -> bool:
    engine = self._model.settings.engine
    return not request_lib.settle(self._request, engine).beam_search

  def _row(self, i: int) -> '_Row':
    while len(self._rows) <= i:
      self._rows.append(_Row(self._model, self._request))
    return self._rows[i]


class _Row:
  """One answer.

  Attributes:
    score: The score that was sent last.
  """

  def __init__(
    self, model: servable_lib.Servable, request: request_lib.Request
  ):
    self.score = 0.0
    self._model = model
    self._request = request
    self._text = model.codecs.output.growing()
    self._taken = 0
    self._length = 0
    # The prompt, if the answer repeats it, precedes the first text.
    self._held = ''.join(map(self._text.push, model.echoed_ids(request)))

  def grow(
    self, tokens: Sequence[int], score: float
  ) -> lm_pb2.GenerateStreamItem:
    ids = self._model.answer_ids(self._request, tokens)
    text = ''.join(self._text.push(i) for i in ids[self._taken :])
    self._taken = max(self._taken, len(ids))
    return self._item(text, score)

  def finish(
    self, tokens: Sequence[int], score: float
  ) -> lm_pb2.GenerateStreamItem:
    item = self.grow(tokens, score)
    rest = self._text.finish()
    item.text += rest
    self._length += len(rest.encode())
    return item

  def _item(self, text: str, score: float) -> lm_pb2.GenerateStreamItem:
    text, self._held = self._held + text, ''
    item = lm_pb2.GenerateStreamItem(
      text=text, prefix_len=self._length, scores=[score - self.score]
    )
    self._length += len(text.encode())
    self.score = score
    return item
