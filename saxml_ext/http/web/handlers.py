"""Answers the requests of the routes that use the cell."""

from collections.abc import Hashable
import time
from typing import Any

from starlette import requests

from saxml_ext.client import sax_aio
from saxml_ext.common import errors
from saxml_ext.http.protocol import chat
from saxml_ext.http.protocol import checkpoint_templates
from saxml_ext.http.protocol import completions
from saxml_ext.http.protocol import form as form_lib
from saxml_ext.http.protocol import sampling
from saxml_ext.http.protocol import templates
from saxml_ext.http.protocol import text_requests
from saxml_ext.http.web import catalogue as catalogue_lib
from saxml_ext.http.web import concurrency
from saxml_ext.http.web import gateway_metrics as metrics_lib
from saxml_ext.http.web import generation
from saxml_ext.http.web import guard
from saxml_ext.http.web import json_routes

_Answer = json_routes.Answer


class Handlers:
  """The handlers of the routes that use the cell."""

  def __init__(
    self,
    catalogue: catalogue_lib.Catalogue,
    options: guard.Options,
    routes: json_routes.JsonRoutes,
  ):
    self._catalogue = catalogue
    self._options = options
    self._off_loop = routes.off_loop
    self._unknown = routes.unknown

  async def completions(
    self, request: requests.Request, body: completions.Request
  ) -> _Answer:
    """Continues a prompt, or several."""
    key = request.state.off_loop_key
    return await self._generate(request, body, completions.CompletionForm, key)

  async def chat_completions(
    self, request: requests.Request, body: chat.Request
  ) -> _Answer:
    """Answers a conversation."""
    key = self._render_key(request, body.model)
    return await self._generate(request, body, chat.ChatForm, key)

  async def _generate(
    self,
    request: requests.Request,
    body: sampling.Sampling,
    kind: type[form_lib.Form],
    key: Hashable,
  ) -> _Answer:
    form = await self._off_loop.run(key, kind.from_request, body, self._profile)
    stream = form.request.stream
    work = self._generation(request, form, self._timeout(request, stream))
    answer_id = f'{kind.ID}-{request.state.request_id}'
    head = {'id': answer_id, 'created': int(time.time())}
    return await (work.events(head) if stream else work.whole(head))

  async def predict(
    self, request: requests.Request, body: text_requests.Predict
  ) -> _Answer:
    """Makes completions in the form of Vertex AI."""
    # The instances may have several templates.
    forms = await self._off_loop.run(
      'predict', body.forms, self._profile, self._unknown
    )
    timeout = self._timeout(request)

    async def answer(form: form_lib.Form) -> dict[str, Any]:
      whole = await self._generation(request, form, timeout).whole({})
      return {'choices': whole['choices'], 'usage': whole['usage']}

    answers = await concurrency.gather(answer, forms)
    return {'predictions': answers}

  async def embeddings(
    self, request: requests.Request, body: text_requests.Embeddings
  ) -> _Answer:
    """Embeds texts."""
    model, options = await self._model(request, body.model)

    async def embed(text: str) -> tuple[list[float], int | None]:
      vector = await model.Embed(text, options)
      try:
        return vector, len((await model.Tokenize(text, options)).ids)
      except (errors.InvalidArgument, errors.PermissionDenied):
        # The model takes ids, or the caller may only embed.
        return vector, None

    results = await concurrency.gather(embed, body.texts())
    counts = [count for _, count in results if count is not None]
    tokens = sum(counts) if len(counts) == len(results) else None
    _record(request).used(tokens or 0, 0)
    name = _record(request).name
    return body.answer(name, [vector for vector, _ in results], tokens)

  async def tokenize(
    self, request: requests.Request, body: text_requests.Tokenize
  ) -> _Answer:
    """Splits a prompt or a conversation into tokens."""
    key = request.state.off_loop_key
    if body.messages is not None:
      key = self._render_key(request, body.model)
    text, adds_start = await self._off_loop.run(key, body.text, self._profile)
    model, options = await self._model(request, body.model)
    tokens = await model.Tokenize(text, options, adds_start)
    return {
      'count': len(tokens.ids),
      'max_model_len': tokens.max_model_len,
      'tokens': list(tokens.ids),
      'token_strs': list(tokens.texts) if body.return_token_strs else None,
    }

  async def detokenize(
    self, request: requests.Request, body: text_requests.Detokenize
  ) -> _Answer:
    """Returns the text of tokens."""
    model, options = await self._model(request, body.model)
    return {'prompt': await model.Detokenize(body.tokens, options)}

  async def _model(
    self, request: requests.Request, name: str | None
  ) -> tuple[sax_aio.LanguageModel, sax_aio.ModelOptions]:
    """Returns the client of a model, and the options of a call to it."""
    model_id = await self._catalogue.find_ready(name, _record(request))
    options = sax_aio.ModelOptions(self._timeout(request))
    return self._catalogue.model(model_id), options

  def _generation(
    self, request: requests.Request, form: form_lib.Form, timeout: float
  ) -> generation.Generation:
    return generation.Generation(
      self._catalogue, _record(request), form, timeout, self._options.queue_secs
    )

  def _timeout(self, request: requests.Request, stream: bool = False) -> float:
    return json_routes.request_seconds(
      request.headers, stream, self._options.request_timeout
    )

  def _render_key(
    self, request: requests.Request, name: str | None
  ) -> Hashable:
    """Returns the group of a call that renders the template of a model."""
    template = self._profile(name).template
    # Such templates are programs of strangers. Each has turns of its own.
    if isinstance(template, checkpoint_templates.CheckpointTemplate):
      return template
    return request.state.off_loop_key

  def _profile(self, name: str | None) -> templates.Profile:
    model_id = self._catalogue.full_id(name or self._catalogue.default)
    return self._options.profile_of(model_id)


def _record(request: requests.Request) -> metrics_lib.Record:
  return request.state.record
