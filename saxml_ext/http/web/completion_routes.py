"""Answers completions and chat completions from the cell."""

import asyncio
from collections.abc import AsyncGenerator
import contextlib
import random
import time
from typing import Any

from saxml_ext.client import sax_aio
from saxml_ext.common import errors
from saxml_ext.http.backend import catalogue as catalogue_lib
from saxml_ext.http.protocol import growing_answer
from saxml_ext.http.protocol import predict
from saxml_ext.http.protocol import problems
from saxml_ext.http.protocol import prompts
from saxml_ext.http.web import gateway_metrics as metrics_lib
from saxml_ext.http.web import merging
from saxml_ext.http.web import responses
from saxml_ext.protobuf import completion_pb2

# Prompts of one request that are in the cell at a time.
AT_ONCE = 32
# Where a full queue does not say when to come again.
_DEFAULT_PAUSE = 0.1

# (number of the prompt, message about its answers).
_News = tuple[int, completion_pb2.CompleteResponse]


class Generation:
  """One request for completions, and how it is answered."""

  def __init__(
    self,
    catalogue: catalogue_lib.Catalogue,
    record: metrics_lib.Record,
    form: predict.Form,
    timeout: float,
    patience: float,
  ):
    """Asks nothing yet.

    Args:
      catalogue: of the cell's models.
      record: of what is to be counted.
      form: the request.
      timeout: seconds for all of it.
      patience: seconds of those that it may wait for room in a full queue.
    """
    self._catalogue = catalogue
    self._record = record
    self._form = form
    self._deadline = time.monotonic() + timeout
    self._patience = time.monotonic() + patience

  async def whole(self, head: dict[str, Any]) -> dict[str, Any]:
    """The answer as one JSON object, which begins with `head`.

    Raises:
      problems.Problem, errors.SaxError: there is none.
    """
    model_id = await self._find()
    head = {**head, 'model': self._name(model_id)}
    calls = [self._collect(model_id, prompt) for prompt in self._form.prompts]
    if len(calls) == 1:
      collected = [await calls[0]]
    else:
      collected = await merging.all_of(calls, AT_ONCE)
    for part in collected:
      self._count(part.usage)
      self._record.finished(a.finish_reason for a in part.answers.values())
    return self._form.body(head, collected)

  async def events(self, head: dict[str, Any]) -> responses.Events:
    """The answer as events, the first of which is there already.

    Raises:
      problems.Problem, errors.SaxError: there is none.
    """
    model_id = await self._find()
    head = {**head, 'model': self._name(model_id)}
    if self._form.sampling.include_usage:
      head['usage'] = None
    news = self._news(model_id)
    try:
      first = await anext(news)
    except BaseException:
      await news.aclose()
      raise
    self._record.began()
    return responses.Events(self._told(head, first, news))

  async def _find(self) -> str:
    self._record.model = await self._catalogue.find(self._form.model)
    return self._record.model

  async def _settings(self, model_id: str) -> dict[str, Any]:
    """Returns the request's settings, limited like the model itself."""
    settings = self._form.sampling.settings
    limit = self._form.sampling.default_max_tokens
    if limit is None:
      return settings
    described = await self._catalogue.describe(model_id)
    if described:
      limit = min(limit, described.max_new_tokens)
    return {**settings, 'max_tokens': limit}

  def _name(self, model_id: str) -> str:
    return self._form.model or self._catalogue.names(model_id)[0]

  def _remaining(self) -> float:
    return max(0.001, self._deadline - time.monotonic())

  async def _complete(
    self, model_id: str, prompt: prompts.Prompt
  ) -> AsyncGenerator[completion_pb2.CompleteResponse, None]:
    """The cell's messages, once its queue has room."""
    while True:
      messages = self._messages(model_id, prompt)
      async with contextlib.aclosing(messages):
        try:
          first = await anext(messages)
        except errors.ResourceExhausted as e:
          pause = _pause(e)
          if time.monotonic() + pause > self._patience:
            raise
        else:
          yield first
          async for response in messages:
            yield response
          return
      await asyncio.sleep(pause)

  async def _messages(
    self, model_id: str, prompt: prompts.Prompt
  ) -> AsyncGenerator[completion_pb2.CompleteResponse, None]:
    model = self._catalogue.model(model_id)
    options = sax_aio.ModelOptions(self._remaining())
    settings = await self._settings(model_id)
    if not self._form.sampling.stream:
      yield await model.Complete(prompt, options, **settings)
      return
    messages = model.CompleteStream(prompt, options, **settings)
    async with contextlib.aclosing(messages):
      async for response in messages:
        yield response

  async def _collect(
    self, model_id: str, prompt: prompts.Prompt
  ) -> growing_answer.Collected:
    collected = growing_answer.Collected()
    messages = self._complete(model_id, prompt)
    async with contextlib.aclosing(messages):
      async for response in messages:
        collected.add(response)
    return collected

  async def _news(self, model_id: str) -> AsyncGenerator[_News, None]:
    streams = [self._complete(model_id, p) for p in self._form.prompts]
    if len(streams) > 1:
      news = merging.merged(streams, AT_ONCE)
      async with contextlib.aclosing(news):
        async for each in news:
          yield each
      return
    async with contextlib.aclosing(streams[0]):
      async for response in streams[0]:
        yield 0, response

  async def _told(
    self,
    head: dict[str, Any],
    first: _News,
    news: AsyncGenerator[_News, None],
  ) -> AsyncGenerator[bytes, None]:
    chunks = self._form.streams()
    usage: list[completion_pb2.Usage] = []
    try:
      async with contextlib.aclosing(news):
        yield self._events_of(chunks, head, first, usage)
        async for item in news:
          if data := self._events_of(chunks, head, item, usage):
            yield data
    except (errors.SaxError, problems.Problem) as e:
      problem = e if isinstance(e, problems.Problem) else problems.of(e)
      self._record.error = problem.status
      # The status is sent; the openai package raises what such an event says.
      yield responses.event(problem.body()) + responses.DONE
      return
    end = responses.DONE
    if self._form.sampling.include_usage:
      told = chunks.last(head, growing_answer.usage_of(usage))
      end = responses.event(told) + end
    yield end

  def _events_of(
    self,
    chunks: Any,
    head: dict[str, Any],
    news: _News,
    usage: list[completion_pb2.Usage],
  ) -> bytes:
    prompt, response = news
    if response.HasField('usage'):
      usage.append(response.usage)
      self._count(response.usage)
    told = chunks.chunks(head, prompt, response)
    for chunk in told:
      self._record.finished(c['finish_reason'] for c in chunk['choices'])
    return b''.join(map(responses.event, told))

  def _count(self, usage: completion_pb2.Usage) -> None:
    self._record.used(usage.prompt_tokens, usage.completion_tokens)


def _pause(refused: errors.ResourceExhausted) -> float:
  """Seconds after which a full queue may have room; not the same for all."""
  asked = refused.retry_after or _DEFAULT_PAUSE
  return asked * random.uniform(1.0, 1.5)
