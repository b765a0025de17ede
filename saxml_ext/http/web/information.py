"""Routes that tell of the gateway and of the cell."""

import asyncio
import math
from typing import Any

from starlette import requests
from starlette import responses as starlette_responses

from saxml_ext.common import errors
from saxml_ext.http.backend import catalogue as catalogue_lib
from saxml_ext.http.protocol import problems
from saxml_ext.http.web import gateway_metrics as metrics_lib
from saxml_ext.http.web import responses

# Of the API that is spoken here, not of a release.
VERSION = '1'


class Information:
  """The handlers."""

  def __init__(
    self,
    catalogue: catalogue_lib.Catalogue,
    metrics: metrics_lib.Metrics,
  ):
    self._catalogue = catalogue
    self._metrics = metrics

  async def models(
    self, request: requests.Request
  ) -> starlette_responses.Response:
    """/v1/models."""
    del request  # All models are told to everybody who is let in.
    found = await self._catalogue.published()
    calls = [
      self._model(name, model_id, created)
      for model_id, created in found.items()
      for name in self._catalogue.names(model_id)
    ]
    told = await asyncio.gather(*calls)
    return responses.of_json({'object': 'list', 'data': told})

  async def model(
    self, request: requests.Request
  ) -> starlette_responses.Response:
    """/v1/models/{id}."""
    name = request.path_params['name']
    model_id = await self._catalogue.find(name)
    created = (await self._catalogue.published(math.inf))[model_id]
    if name not in self._catalogue.aliases:
      name = model_id
    return responses.of_json(await self._model(name, model_id, created))

  async def _model(
    self, name: str, model_id: str, created: int
  ) -> dict[str, Any]:
    told = await self._catalogue.describe(model_id)
    return {
      'id': name,
      'object': 'model',
      # When this gateway first saw it: the cell does not tell.
      'created': created,
      'owned_by': 'sax',
      'root': told.checkpoint_path if told else None,
      'parent': None,
      'max_model_len': told.max_prompt + told.max_new_tokens if told else None,
    }

  async def health(
    self, request: requests.Request
  ) -> starlette_responses.Response:
    """/health: whether the cell's admin server answers, or did just now."""
    del request
    try:
      await self._catalogue.check_health()
    except errors.SaxError as e:
      raise problems.Problem(
        503,
        f'the cell {self._catalogue.cell} cannot be asked: {e.message}',
        kind='server_error',
        code='unavailable',
      ) from e
    return responses.of_json({'status': 'ok'})

  async def live(
    self, request: requests.Request
  ) -> starlette_responses.Response:
    """/health/live: whether this process answers."""
    del request
    return responses.of_json({'status': 'ok'})

  async def version(
    self, request: requests.Request
  ) -> starlette_responses.Response:
    """/version."""
    del request
    return responses.of_json({'version': VERSION})

  async def metrics(
    self, request: requests.Request
  ) -> starlette_responses.Response:
    """/metrics."""
    text, kind = self._metrics.text(request.headers.get('accept', ''))
    return starlette_responses.Response(text, headers={'content-type': kind})
