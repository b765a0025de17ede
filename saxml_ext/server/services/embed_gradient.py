"""Embeddings and gradients of texts, where a model's params ask for them."""

import grpc
import numpy as np

from saxml_ext.common import grpc_aio
from saxml_ext.common.security import caller
from saxml_ext.protobuf import lm_pb2
from saxml_ext.protobuf import lm_pb2_grpc
from saxml_ext.server.lifecycle import lifecycle
from saxml_ext.server.loading import servable as servable_lib
from saxml_ext.server.scheduling import admission
from saxml_ext.server.services import calls
from saxml_ext.server.services import extra_inputs
from saxml_ext.server.services import prompts
from saxml_ext.server.services import wakeups


class EmbedGradient(lm_pb2_grpc.LMServiceServicer):
  """Two methods of sax.server.lm.LMService, to derive the service from."""

  _models: lifecycle.Models[servable_lib.Servable]
  _wakeups: wakeups.Wakeups

  @grpc_aio.method()
  async def Embed(
    self, request: lm_pb2.EmbedRequest, context: grpc.aio.ServicerContext
  ) -> lm_pb2.EmbedResponse:
    """The embedding of a text, which is cut as a prompt is."""
    method = admission.EMBED
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
    """Gradients of log p(suffix | prefix), each tensor flat, row by row."""
    method = admission.GRADIENT
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
  """Ids of a text, [T] int32."""
  prompts.check_size(text, model.settings)
  return await calls.prepare(
    model.settings.tokenized_input, model.codecs.input.encode, text
  )
