"""The data service `sax.completion`, which extends Sax's LMService.

It supports features that sax.server.lm.LMService lacks: search settings per
request, token ids as prompts, log-probabilities of tokens, stop texts and
finish reasons.

Stop texts end samples as soon as they appear. When all samples of a request
have ended, its slot is freed. In a beam search, stop texts truncate the
finished answers, because a beam with a stop text may still lose.
"""

import asyncio
import contextlib
from typing import TypeAlias

import grpc

from saxml_ext.common import errors
from saxml_ext.common import grpc_aio
from saxml_ext.protobuf import completion_pb2
from saxml_ext.protobuf import completion_pb2_grpc
from saxml_ext.server.completion import answers as answers_lib
from saxml_ext.server.completion import parsed_request
from saxml_ext.server.loading import servable as servable_lib
from saxml_ext.server.scheduling import scheduler
from saxml_ext.server.services import calls
from saxml_ext.server.services import prompts

_Context: TypeAlias = grpc.aio.ServicerContext
# The maximum number of ids to detokenize; an answer has far fewer.
_MOST_IDS = 1 << 16


class CompletionService(completion_pb2_grpc.CompletionServicer):
  """Serves sax.completion.Completion with the loaded models."""

  def __init__(self, models: calls.Models):
    """Creates the service; call this on the event loop that will serve."""
    self._models = models
    self._wakeups = calls.Wakeups(asyncio.get_running_loop())

  @grpc_aio.method()
  async def Complete(
    self, request: completion_pb2.CompleteRequest, context: _Context
  ) -> None:
    """Continues a prompt.

    A caller needs access to lm.generate, and for a stream also to
    lm.generate_stream. A slow reader gets fewer and longer messages.
    """
    async with calls.Call(
      self._models,
      request.model_key,
      scheduler.GENERATE,
      context,
      also=(scheduler.STREAM,) if request.stream else (),
    ) as call:
      model = call.model
      parsed = await parsed_request.parse(model, request, call.client)
      answers = answers_lib.Answers(model, parsed)
      updates = self._wakeups.follow(
        lambda on_progress: model.scheduler.generate(
          parsed.query,
          call.deadline,
          on_progress=on_progress if parsed.query.stream else None,
          client=call.client,
          priority=parsed.priority,
        )
      )
      # If the loop ends early, closing `updates` cancels the request.
      async with contextlib.aclosing(updates):
        async for update in updates:
          message = (
            answers.last(update.state)
            if update.is_last
            else answers.next(update.state)
          )
          if answers.ended:
            call.succeeded()
          if message is not None:
            await calls.write(context, message)
          if answers.ended:
            break

  @grpc_aio.method()
  async def Tokenize(
    self, request: completion_pb2.TokenizeRequest, context: _Context
  ) -> completion_pb2.TokenizeResponse:
    """Converts text to ids; the model's start id is added like to a prompt."""
    model = await self._find(request.model_key, context)
    tokens = (await prompts.tokenize(model, request)).tolist()
    engine = model.settings.engine
    words = model.codecs.words
    assert words is not None  # Otherwise `tokenize` raises.
    return completion_pb2.TokenizeResponse(
      ids=tokens,
      texts=[
        words.piece(i).decode(errors='replace')
        or words.decode([i], special=True)
        for i in tokens
      ],
      max_model_len=engine.max_length,
    )

  @grpc_aio.method()
  async def Detokenize(
    self, request: completion_pb2.DetokenizeRequest, context: _Context
  ) -> completion_pb2.DetokenizeResponse:
    """Converts ids to text."""
    model = await self._find(request.model_key, context)
    if len(request.ids) > _MOST_IDS:
      raise errors.InvalidArgument(
        f'there are {len(request.ids)} ids, above the limit of {_MOST_IDS}'
      )
    parsed_request.check_ids('ids', request.ids, model)
    codec = model.codecs.words or model.codecs.output
    text = await calls.run(False, codec.decode, list(request.ids), True)
    return completion_pb2.DetokenizeResponse(text=text)

  @grpc_aio.method()
  async def Describe(
    self, request: completion_pb2.DescribeRequest, context: _Context
  ) -> completion_pb2.DescribeResponse:
    """Returns the limits and features of a model."""
    serving = await calls.find(
      self._models, request.model_key, scheduler.GENERATE, context
    )
    settings = serving.model.settings
    engine = settings.engine
    codecs = serving.model.codecs
    return completion_pb2.DescribeResponse(
      model_path=serving.spec.model_path,
      checkpoint_path=serving.spec.checkpoint_path,
      max_prompt=engine.max_prompt,
      max_new_tokens=engine.max_steps,
      max_model_len=engine.max_length,
      max_beams=engine.most_beams,
      max_samples=engine.most_samples,
      max_logprobs=engine.max_logprobs,
      max_top_k=engine.max_top_k,
      vocab_size=codecs.vocab_size,
      has_tokenizer=codecs.words is not None,
      family=settings.family.name,
      num_parameters=settings.num_parameters or 0,
      format=settings.quantization or settings.dtype,
    )

  async def _find(self, key: str, context: _Context) -> servable_lib.Servable:
    serving = await calls.find(self._models, key, scheduler.GENERATE, context)
    return serving.model
