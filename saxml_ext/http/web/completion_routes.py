"""Runs completions and chat completions in the cell."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Sequence
import contextlib
import random
import time
from typing import Any, TypeVar

from saxml_ext.client import sax_aio
from saxml_ext.common import errors
from saxml_ext.http.protocol import answers
from saxml_ext.http.protocol import completions
from saxml_ext.http.protocol import problems
from saxml_ext.http.protocol import sampling
from saxml_ext.http.web import bodies
from saxml_ext.http.web import catalogue as catalogue_lib
from saxml_ext.http.web import gateway_metrics as metrics_lib
from saxml_ext.protobuf import completion_pb2

# The maximum number of prompts of one request that run at a time.
AT_ONCE = 32
# The retry delay, in seconds, if a full queue reports none.
_DEFAULT_PAUSE = 0.1

_T = TypeVar('_T')
# A pair: the number of the prompt, and a message about its answers.
_News = tuple[int, completion_pb2.CompleteResponse]


async def find(
  catalogue: catalogue_lib.Catalogue,
  record: metrics_lib.Record,
  name: str | None,
) -> str:
  """Returns the id of a model that can answer, and records the model.

  Args:
    catalogue: The cell's models.
    record: The record of the request.
    name: The name of the model in the request; None if it names none.

  Raises:
    problems.Problem, errors.SaxError: There is no such model, or it is not
    ready.
  """
  record.model_id = await catalogue.find(name)
  record.model = catalogue.names(record.model_id)[0]
  record.name = name or record.model
  await catalogue.check_ready(record.model_id)
  return record.model_id


class Generation:
  """A request for completions that runs in the cell."""

  def __init__(
    self,
    catalogue: catalogue_lib.Catalogue,
    record: metrics_lib.Record,
    form: completions.Form,
    timeout: float,
    patience: float,
  ):
    """Starts the clock.

    Args:
      catalogue: The cell's models.
      record: The record that counts the request.
      form: The request.
      timeout: The time limit of the whole request, in seconds.
      patience: The time to wait for room in a full queue, in seconds; it is a
        part of the time limit.
    """
    self._catalogue = catalogue
    self._record = record
    self._form = form
    self._deadline = time.monotonic() + timeout
    self._patience = time.monotonic() + patience

  async def whole(self, head: dict[str, Any]) -> dict[str, Any]:
    """Returns the answer as one JSON object, which begins with `head`.

    Raises:
      problems.Problem, errors.SaxError: The request failed.
    """
    model_id = await self._find()
    head = {**head, 'model': self._record.name}
    collected = [answers.Collected() for _ in self._form.prompts]
    async with contextlib.aclosing(self._news(model_id)) as news:
      async for prompt, response in news:
        collected[prompt].add(response)
    for part in collected:
      self._count(part.usage)
      self._record.finished(a.finish_reason for a in part.answers.values())
    return self._form.body(head, collected)

  async def events(self, head: dict[str, Any]) -> bodies.Events:
    """Returns the answer as events, after the first message has arrived.

    Raises:
      problems.Problem, errors.SaxError: The request failed before the first
      message.
    """
    model_id = await self._find()
    head = {**head, 'model': self._record.name}
    if self._form.request.include_usage:
      head['usage'] = None
    if self._form.request.continuous_usage:
      head['usage'] = answers.usage_of(await self._prompt_usage(model_id))
    news = self._news(model_id)
    try:
      first = await anext(news)
    except BaseException:
      await news.aclose()
      raise
    self._record.began()
    return bodies.Events(self._told(head, first, news))

  async def _find(self) -> str:
    return await find(self._catalogue, self._record, self._form.request.model)

  async def _settings(self, model_id: str) -> dict[str, Any]:
    """Returns the request's settings, and the defaults of the model."""
    limits = None
    if self._form.defaults:
      limits = await self._catalogue.describe(model_id)
    return self._form.all_settings(limits)

  async def _prompt_usage(self, model_id: str) -> list[completion_pb2.Usage]:
    """Returns the token counts of the prompts; answers report them last."""
    model = self._catalogue.model(model_id)
    options = sax_aio.ModelOptions(self._remaining())
    adds_start = self._form.settings.get('add_special_tokens', True)

    async def count(prompt: sampling.Prompt) -> completion_pb2.Usage:
      ids = prompt
      if isinstance(prompt, sampling.Text):
        ids = (await model.Tokenize(prompt, options, adds_start)).ids
      return completion_pb2.Usage(prompt_tokens=len(ids))

    return await all_of([count(p) for p in self._form.prompts], AT_ONCE)

  def _remaining(self) -> float:
    return max(0.001, self._deadline - time.monotonic())

  async def _complete(
    self, model_id: str, prompt: sampling.Prompt
  ) -> AsyncGenerator[completion_pb2.CompleteResponse, None]:
    """Yields the cell's messages; waits until the queue has room."""
    while True:
      messages = self._messages(model_id, prompt)
      async with contextlib.aclosing(messages):
        try:
          first = await anext(messages)
        except errors.ResourceExhausted as e:
          # Random delays prevent that all clients retry at the same time.
          pause = (e.retry_after or _DEFAULT_PAUSE) * random.uniform(1.0, 1.5)
          waited = time.monotonic() + pause
          if waited > self._patience or problems.of(e).retry_after is None:
            raise
        else:
          yield first
          async for response in messages:
            yield response
          return
      await asyncio.sleep(pause)

  async def _messages(
    self, model_id: str, prompt: sampling.Prompt
  ) -> AsyncGenerator[completion_pb2.CompleteResponse, None]:
    model = self._catalogue.model(model_id)
    options = sax_aio.ModelOptions(self._remaining())
    settings = await self._settings(model_id)
    if not self._form.request.stream:
      yield await model.Complete(prompt, options, **settings)
      return
    messages = model.CompleteStream(prompt, options, **settings)
    async with contextlib.aclosing(messages):
      async for response in messages:
        yield response

  async def _news(self, model_id: str) -> AsyncGenerator[_News, None]:
    streams = [self._complete(model_id, p) for p in self._form.prompts]
    if len(streams) > 1:
      news = merged(streams, AT_ONCE)
      async with contextlib.aclosing(news):
        async for each in news:
          yield each
      return
    async with contextlib.aclosing(streams[0]):
      async for response in streams[0]:
        yield 0, response

  async def _told(
    self, head: dict[str, Any], first: _News, news: AsyncGenerator[_News, None]
  ) -> AsyncGenerator[bytes, None]:
    chunks = completions.Chunks(self._form)
    usage: list[completion_pb2.Usage] = []

    def events_of(item: _News) -> bytes:
      prompt, response = item
      if response.HasField('usage'):
        usage.append(response.usage)
        self._count(response.usage)
      parts = chunks.chunks(head, prompt, response)
      for chunk in parts:
        self._record.finished(c['finish_reason'] for c in chunk['choices'])
      return b''.join(map(bodies.event, parts))

    try:
      async with contextlib.aclosing(news):
        yield events_of(first)
        async for item in news:
          if data := events_of(item):
            yield data
    except (errors.SaxError, problems.Problem) as e:
      problem = e if isinstance(e, problems.Problem) else problems.of(e)
      problem.message = self._record.public(problem.message)
      self._record.error = problem.status
      # The status was already sent. The openai package raises the error in this
      # event.
      yield bodies.event(problem.body()) + bodies.DONE
      return
    end = bodies.DONE
    if self._form.request.include_usage:
      end = bodies.event(chunks.last(head, answers.usage_of(usage))) + end
    yield end

  def _count(self, usage: completion_pb2.Usage) -> None:
    self._record.used(usage.prompt_tokens, usage.completion_tokens)


async def merged(
  streams: Sequence[AsyncGenerator[_T, None]], at_once: int
) -> AsyncGenerator[tuple[int, _T], None]:
  """Yields (number of the stream, item) pairs as the items arrive.

  A slow reader slows down the streams. The first error of a stream ends all
  streams, and so does closing the generator.

  Args:
    streams: The streams, not started yet.
    at_once: The maximum number of streams that are read at a time.
  """
  # The queue holds one item that was read and not yielded yet.
  queue: asyncio.Queue[tuple[int, _T]] = asyncio.Queue(1)
  room = asyncio.Semaphore(at_once)

  async def read(number: int, stream: AsyncGenerator[_T, None]) -> None:
    async with room, contextlib.aclosing(stream):
      async for item in stream:
        await queue.put((number, item))

  tasks = [
    asyncio.create_task(read(number, stream))
    for number, stream in enumerate(streams)
  ]
  ended = asyncio.gather(*tasks)
  try:
    while not (ended.done() and queue.empty()):
      taking = asyncio.create_task(queue.get())
      try:
        await asyncio.wait((taking, ended), return_when='FIRST_COMPLETED')
        if taking.done():
          yield taking.result()
        else:
          ended.result()
      finally:
        taking.cancel()
    ended.result()
  finally:
    for task in tasks:
      task.cancel()
    await asyncio.gather(ended, *tasks, return_exceptions=True)


async def all_of(
  calls: Sequence[Coroutine[Any, Any, _T]], at_once: int
) -> list[_T]:
  """Returns the results of coroutines; the first error ends all of them.

  Args:
    calls: The coroutines, not started yet.
    at_once: The maximum number of coroutines that run at a time.
  """
  room = asyncio.Semaphore(at_once)

  async def one(call: Coroutine[Any, Any, _T]) -> _T:
    async with room:
      return await call

  tasks = [asyncio.create_task(one(call)) for call in calls]
  try:
    return await asyncio.gather(*tasks)
  finally:
    for task in tasks:
      task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for call in calls:
      call.close()  # This closes calls that never started.
