"""Generates the answers to one request in the cell.

It sends the prompts to the cell side by side, waits for room in full queues,
counts tokens, and returns the answers whole or as a stream. A
`form_lib.Form` knows the format of the API; `json_routes` cancels the work if
the client disconnects.
"""

import asyncio
from collections.abc import AsyncGenerator
import contextlib
import dataclasses
import random
import time
from typing import Any

from saxml_ext.client import sax_aio
from saxml_ext.common import errors
from saxml_ext.http.protocol import answers
from saxml_ext.http.protocol import form as form_lib
from saxml_ext.http.protocol import problems
from saxml_ext.http.protocol import sampling
from saxml_ext.http.web import bodies
from saxml_ext.http.web import catalogue as catalogue_lib
from saxml_ext.http.web import concurrency
from saxml_ext.http.web import gateway_metrics as metrics_lib
from saxml_ext.protobuf import completion_pb2

# The retry delay, in seconds, if a full queue reports none.
_DEFAULT_PAUSE = 0.1

_Responses = AsyncGenerator[completion_pb2.CompleteResponse, None]
# A pair: the number of the prompt, and a message about its answers.
_Numbered = tuple[int, completion_pb2.CompleteResponse]


class Generation:
  """A request for completions that runs in the cell."""

  def __init__(
    self,
    catalogue: catalogue_lib.Catalogue,
    record: metrics_lib.Record,
    form: form_lib.Form,
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
    self._model: sax_aio.LanguageModel  # Set by `_start`.
    self._settings: dict[str, Any]
    self._deadline = time.monotonic() + timeout
    self._patience = time.monotonic() + patience

  async def whole(self, head: dict[str, Any]) -> dict[str, Any]:
    """Returns the answer as one JSON object, which begins with `head`.

    Raises:
      problems.Problem, errors.SaxError: The request failed.
    """
    await self._start()
    head = {**head, 'model': self._record.name, 'object': self._form.OBJECT}
    collected = [answers.Collected() for _ in self._form.prompts]
    responses = self._responses()
    async with contextlib.aclosing(responses):
      async for prompt, response in responses:
        collected[prompt].add(response)
    n, choices = self._form.request.n, []
    for i, part in enumerate(collected):
      self._count(part.usage)
      self._record.finished(a.finish_reason for a in part.answers.values())
      for answer in part.best(n):
        answer = dataclasses.replace(answer, index=i * n + answer.index)
        choices.append(self._form.choice(answer, i))
    usage = answers.total_usage([part.usage for part in collected])
    return {**head, 'choices': choices, 'usage': usage}

  async def events(self, head: dict[str, Any]) -> bodies.Events:
    """Returns the answer as events, after the first message has arrived.

    Raises:
      problems.Problem, errors.SaxError: The request failed before the first
      message.
    """
    await self._start()
    head = {**head, 'model': self._record.name}
    if self._form.request.include_usage:
      head['usage'] = None
    if self._form.request.continuous_usage:
      head['usage'] = answers.total_usage(await self._prompt_usage())
    responses = self._responses()
    try:
      first = await anext(responses)
    except BaseException:
      await responses.aclose()
      raise
    self._record.began()
    return bodies.Events(self._encoded(head, first, responses))

  async def _start(self) -> None:
    """Finds the model, and the settings of the request for it."""
    model_id = await self._catalogue.find_ready(
      self._form.request.model, self._record
    )
    limits = None
    if self._form.defaults:
      limits = await self._catalogue.describe(model_id)
    self._model = self._catalogue.model(model_id)
    self._settings = self._form.all_settings(limits)

  async def _prompt_usage(self) -> list[completion_pb2.Usage]:
    """Returns the token counts of the prompts; answers report them last."""
    options = self._options()
    adds_start = self._form.settings.get('add_special_tokens', True)

    async def count(prompt: sampling.Prompt) -> completion_pb2.Usage:
      ids = prompt
      if isinstance(prompt, sampling.Text):
        ids = (await self._model.Tokenize(prompt, options, adds_start)).ids
      return completion_pb2.Usage(prompt_tokens=len(ids))

    return await concurrency.gather(count, self._form.prompts)

  def _options(self) -> sax_aio.ModelOptions:
    return sax_aio.ModelOptions(max(0.001, self._deadline - time.monotonic()))

  def _responses(self) -> AsyncGenerator[_Numbered, None]:
    return concurrency.merge(list(map(self._complete, self._form.prompts)))

  async def _complete(self, prompt: sampling.Prompt) -> _Responses:
    """Yields the cell's messages; waits until the queue has room."""
    while True:
      responses = self._attempt(prompt)
      async with contextlib.aclosing(responses):
        try:
          first = await anext(responses)
        except errors.ResourceExhausted as e:
          # Random delays prevent that all clients retry at the same time.
          pause = (e.retry_after or _DEFAULT_PAUSE) * random.uniform(1.0, 1.5)
          end = time.monotonic() + pause
          if end > self._patience or problems.from_error(e).retry_after is None:
            raise
        else:
          yield first
          async for response in responses:
            yield response
          return
      await asyncio.sleep(pause)

  async def _attempt(self, prompt: sampling.Prompt) -> _Responses:
    options = self._options()
    if not self._form.request.stream:
      yield await self._model.Complete(prompt, options, **self._settings)
      return
    responses = self._model.CompleteStream(prompt, options, **self._settings)
    async with contextlib.aclosing(responses):
      async for response in responses:
        yield response

  async def _encoded(
    self,
    head: dict[str, Any],
    first: _Numbered,
    responses: AsyncGenerator[_Numbered, None],
  ) -> AsyncGenerator[bytes, None]:
    """Yields the events of a stream."""
    chunks = _Chunks(self._form, head)
    usage: list[completion_pb2.Usage] = []

    def encode(numbered: _Numbered) -> bytes:
      prompt, response = numbered
      if response.HasField('usage'):
        usage.append(response.usage)
        self._count(response.usage)
      parts = chunks.add(prompt, response)
      for chunk in parts:
        self._record.finished(c['finish_reason'] for c in chunk['choices'])
      return b''.join(map(bodies.event, parts))

    try:
      async with contextlib.aclosing(responses):
        yield encode(first)
        async for numbered in responses:
          if data := encode(numbered):
            yield data
    except (errors.SaxError, problems.Problem) as e:
      problem = problems.from_error(e)
      problem.message = self._record.public(problem.message)
      self._record.error = problem.status
      # The status was already sent. The openai package raises the error in this
      # event.
      yield bodies.event(problem.body()) + bodies.DONE
      return
    end = bodies.DONE
    if self._form.request.include_usage:
      end = bodies.event(chunks.last(answers.total_usage(usage))) + end
    yield end

  def _count(self, usage: completion_pb2.Usage) -> None:
    self._record.used(usage.prompt_tokens, usage.completion_tokens)


class _Chunks:
  """The chunks of a streamed answer."""

  def __init__(self, form: form_lib.Form, head: dict[str, Any]):
    self._form = form
    self._head = {**head, 'object': form.CHUNK}
    self._offsets: dict[int, int] = {}
    self._tokens = 0

  def add(
    self, prompt: int, response: completion_pb2.CompleteResponse
  ) -> list[dict[str, Any]]:
    """Returns the chunks that report the new parts in a message."""
    choices = []
    for choice in response.choices:
      index = prompt * self._form.request.n + choice.index
      delta = answers.Answer(index).add(choice)
      offset = self._offsets.get(index)
      length = sum(len(token.text) for token in delta.tokens)
      self._offsets[index] = (offset or 0) + length
      self._tokens += len(delta.tokens)
      choices += self._form.deltas(delta, prompt, offset)
    head = self._head
    if self._form.request.continuous_usage:
      total = head['usage']['prompt_tokens'] + self._tokens
      counts = {'completion_tokens': self._tokens, 'total_tokens': total}
      head = {**head, 'usage': head['usage'] | counts}
    return [{**head, 'choices': [choice]} for choice in choices]

  def last(self, usage: dict[str, int]) -> dict[str, Any]:
    """Returns the chunk with the token counts."""
    return {**self._head, 'choices': [], 'usage': usage}
