"""From a request of Sax's Generate, streamed or not, to the engine's request."""

from saxml_ext.common.telemetry import tracing
from saxml_ext.engine import request as request_lib
from saxml_ext.protobuf import lm_pb2
from saxml_ext.server.loading import servable as servable_lib
from saxml_ext.server.scheduling import scheduler
from saxml_ext.server.services import calls
from saxml_ext.server.services import extra_inputs
from saxml_ext.server.services import prompts


async def prepare(
  model: servable_lib.Servable,
  method: str,
  request: lm_pb2.GenerateRequest,
  client: str,
) -> request_lib.Request:
  """Reads extra inputs and prompt.

  Args:
    model: that is asked.
    method: lm.generate or lm.generate_stream.
    request: as it came.
    client: who asks.

  Raises:
    errors.InvalidArgument: an extra input or the prompt cannot be taken.
    errors.ResourceExhausted: the model has no room for another request.
  """
  settings = model.settings
  extra = extra_inputs.merge(
    request.extra_inputs, settings.extra_inputs[method]
  )
  limit = extra_inputs.max_new_tokens(extra, settings.engine.max_new_tokens)
  model.scheduler.check_admission(scheduler.GENERATE, client)
  prompts.check_size(request.text, settings)
  with tracing.part('tokenize'):
    ids = await calls.prepare(
      settings.tokenized_input, model.codecs.input.encode, request.text
    )
  return request_lib.Request(
    tokens=prompts.finish(ids, settings),
    max_new_tokens=limit,
    min_new_tokens=min(settings.engine.min_new_tokens, limit),
    stream=method == scheduler.STREAM,
    **extra_inputs.choices(extra, settings),
  )
