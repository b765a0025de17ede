"""A Completion service for tests that takes its answer from the prompt.

Its tokens are characters, and the token ids are their code points.
"""

import collections
import itertools
import math
import threading
import time

import grpc

from saxml_ext.client.testing import fake_cell
from saxml_ext.common import errors
from saxml_ext.common.security import access
from saxml_ext.protobuf import completion_pb2
from saxml_ext.protobuf import completion_pb2_grpc
from saxml_ext.protobuf import lm_pb2
from saxml_ext.protobuf import lm_pb2_grpc

MAX_PROMPT = 100
MAX_NEW_TOKENS = 1000
SLOW_TOKENS = 30
EOS_ID = 0


class FakeCompletion(
  completion_pb2_grpc.CompletionServicer, lm_pb2_grpc.LMServiceServicer
):
  """A service that answers with the prompt in capital letters.

  Each token is one character. Some prompts have a special meaning:
  - "err:CODE" fails.
  - "name:" fails with a message that has the id of the model.
  - "full:S:N" fails the first N times, with a retry delay of S seconds.
  - "break:N" fails after N tokens.
  - "endless:S" makes a token every S seconds until it is cancelled.
  - "slow:S" does the same, but ends after SLOW_TOKENS tokens.

  Attributes:
    requests: The requests of all methods, in order.
    metadata: The metadata of all calls of Complete, in order.
    callers: The names of the callers of Complete; empty if unknown.
    cancelled: The event that is set when an endless or slow answer ends.
  """

  def __init__(self) -> None:
    self.requests: list = []
    self.metadata: list[dict[str, str]] = []
    self.callers: list[str] = []
    self.cancelled = threading.Event()
    self.running = threading.Event()
    self._refusals: collections.Counter[str] = collections.Counter()
    self._server = fake_cell.Server(_add_services, self, wrap_text=False)
    self.address = self._server.address

  def stop(self) -> None:
    self._server.stop()

  def Complete(self, request, context):
    self.requests.append(request)
    self.metadata.append(dict(context.invocation_metadata()))
    self.callers.append(access.caller_name(context))
    if request.WhichOneof('prompt') == 'token_ids':
      text = ''.join(map(chr, request.token_ids.ids))
    else:
      segments = request.segments.segments
      text = request.text or ''.join(part.text for part in segments)
    kind, _, rest = text.partition(':')
    if request.max_tokens > MAX_NEW_TOKENS:
      raise errors.InvalidArgument(
        f'max_tokens is {request.max_tokens}; between 1 and {MAX_NEW_TOKENS}'
      )
    if len(text) > MAX_PROMPT:
      raise errors.InvalidArgument(f'the prompt has {len(text)} tokens')
    if kind == 'name':
      raise errors.InvalidArgument(
        f'the model {request.model_key} has no such prompt'
      )
    if kind == 'err':
      raise errors.from_code(grpc.StatusCode[rest], f'injected {rest}')
    if kind == 'full':
      seconds, times = rest.split(':')[:2]
      self._refusals[text] += 1
      if self._refusals[text] <= int(times):
        raise errors.ResourceExhausted('the queue is full', float(seconds))
    if kind in ('endless', 'slow'):
      most = SLOW_TOKENS if kind == 'slow' else math.inf
      yield from self._endless(float(rest), most, request, context)
      return
    answer = text.upper()[: request.max_tokens or MAX_NEW_TOKENS]
    prompt = text if request.echo else ''
    deltas = (
      self._deltas(request, i, prompt, answer) for i in range(request.n or 1)
    )
    if request.stream:
      parts = [c for row in itertools.zip_longest(*deltas) for c in row if c]
      for i, choice in enumerate(parts):
        if kind == 'break' and i == int(rest):
          raise errors.Unavailable(
            f'the replica of {request.model_key} is gone'
          )
        yield completion_pb2.CompleteResponse(choices=[choice])
      whole = []
    else:
      whole = [_joined(list(row)) for row in deltas]
    usage = completion_pb2.Usage(
      prompt_tokens=len(text), completion_tokens=len(answer) * (request.n or 1)
    )
    yield completion_pb2.CompleteResponse(choices=whole, usage=usage)

  def _deltas(self, request, index, prompt, answer):
    """Yields the parts of an answer, with one token per choice."""
    if prompt:
      yield completion_pb2.Choice(index=index, text=prompt)
    for character in answer:
      yield completion_pb2.Choice(
        index=index, text=character, tokens=[_token(request, character)]
      )
    length = completion_pb2.FINISH_REASON_LENGTH
    stop = completion_pb2.FINISH_REASON_STOP
    ended = {'finish_reason': length}
    if not request.HasField('max_tokens'):
      ids = list(request.stop_token_ids)
      ended = {'finish_reason': stop, 'stop_token_id': (ids or [EOS_ID])[0]}
    yield completion_pb2.Choice(
      index=index,
      **ended,
      score=-0.5 - index,
      logprob=-len(answer) / (1 + index),
    )

  def _endless(self, seconds, most, request, context):
    context.add_callback(self.cancelled.set)
    self.running.set()
    count = 0
    while context.is_active() and count < most:
      count += 1
      token = completion_pb2.Token(token_id=120, text='x')
      choice = completion_pb2.Choice(text='x', tokens=[token])
      if request.stream:
        yield completion_pb2.CompleteResponse(choices=[choice])
      time.sleep(seconds)

  def Embed(self, request, context):
    if request.text == 'none':
      raise errors.InvalidArgument('the model does not serve lm.embed')
    return lm_pb2.EmbedResponse(embedding=[0.5, len(request.text)])

  def Tokenize(self, request, context):
    self.requests.append(request)
    return completion_pb2.TokenizeResponse(
      ids=map(ord, request.text),
      texts=request.text,
      max_model_len=MAX_PROMPT + MAX_NEW_TOKENS,
    )

  def Detokenize(self, request, context):
    self.requests.append(request)
    return completion_pb2.DetokenizeResponse(
      text=''.join(map(chr, request.ids))
    )

  def Describe(self, request, context):
    return completion_pb2.DescribeResponse(
      model_path='p.A',
      checkpoint_path='/c/1',
      max_prompt=MAX_PROMPT,
      max_new_tokens=MAX_NEW_TOKENS,
      max_beams=4,
      max_samples=4,
      max_model_len=MAX_PROMPT + MAX_NEW_TOKENS,
      vocab_size=1000,
      has_tokenizer=True,
      family='gptj',
      num_parameters=6_050_882_784,
      format='int8',
    )


def _add_services(servicer, server):
  completion_pb2_grpc.add_CompletionServicer_to_server(servicer, server)
  lm_pb2_grpc.add_LMServiceServicer_to_server(servicer, server)


def _token(request, character):
  token = completion_pb2.Token(token_id=ord(character), text=character)
  if request.HasField('logprobs'):
    token.logprob = -1.0
    for i in range(request.logprobs):
      token.alternatives.add(
        token_id=i, text=character if i == 0 else str(i), logprob=-1.0 - i
      )
  return token


def _joined(parts):
  whole = completion_pb2.Choice()
  for part in parts:
    text = whole.text + part.text
    whole.MergeFrom(part)
    whole.text = text
  return whole
