"""Parses requests for embeddings and tokens, and Vertex AI's requests."""

import base64
from collections.abc import Mapping, Sequence
import struct
import time
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from saxml_ext.http.protocol import chat
from saxml_ext.http.protocol import completions
from saxml_ext.http.protocol import fields
from saxml_ext.http.protocol import form
from saxml_ext.http.protocol import sampling
from saxml_ext.http.protocol import templates

_MOST_TEXTS = 256
_MOST_INSTANCES = 256
_OF_MESSAGES = ('chat_template', 'chat_template_kwargs', 'tools', 'tool_choice')
# The time to render the chats of all instances, in seconds.
_RENDER_SECS = 2.0


class Embeddings(fields.Request):
  """A request of /v1/embeddings."""

  HARMLESS: ClassVar[tuple[str, ...]] = ('user',)
  NEUTRAL: ClassVar[Mapping[str, tuple[Any, ...]]] = {'dimensions': ()}

  input: (
    str
    | Annotated[list[str], msgspec.Meta(min_length=1, max_length=_MOST_TEXTS)]
  )
  model: str | None = None
  # The openai package asks for base64: float32 in little-endian order.
  encoding_format: Literal['float', 'base64'] = 'float'

  def texts(self) -> list[str]:
    """Returns the texts to embed."""
    return [self.input] if isinstance(self.input, str) else self.input

  def answer(
    self, model: str, vectors: Sequence[Sequence[float]], tokens: int | None
  ) -> dict[str, Any]:
    """Returns the answer.

    Args:
      model: The name of the model.
      vectors: The embedding of each text, [D].
      tokens: The number of tokens of all texts; None if unknown.
    """
    data = [
      {'object': 'embedding', 'index': i, 'embedding': self._written(values)}
      for i, values in enumerate(vectors)
    ]
    result: dict[str, Any] = {
      'object': 'list',
      'data': data,
      'model': self.model or model,
    }
    if tokens is not None:
      result['usage'] = {'prompt_tokens': tokens, 'total_tokens': tokens}
    return result

  def _written(self, values: Sequence[float]) -> str | list[float]:
    if self.encoding_format == 'float':
      return list(values)
    return base64.b64encode(struct.pack(f'<{len(values)}f', *values)).decode()


class Tokenize(fields.Request):
  """A request of /tokenize, in vLLM's format: a prompt or a conversation."""

  NEUTRAL: ClassVar[Mapping[str, tuple[Any, ...]]] = chat.CONVERSATION_NEUTRAL

  model: str | None = None
  prompt: str | None = None
  messages: chat.Messages | None = None
  chat_template: chat.TemplateName | None = None
  chat_template_kwargs: chat.Variables | None = None
  tools: chat.Tools = None
  tool_choice: chat.ToolChoice = None
  return_token_strs: bool = False
  add_special_tokens: bool | None = None

  def text(self, profile_of: templates.ProfileOf) -> tuple[sampling.Text, bool]:
    """Returns the text to tokenize, and True if it gets a start token.

    Raises:
      problems.BadRequest: The request has neither a prompt nor messages, or it
      has both.
    """
    if self.messages is not None:
      if self.prompt is not None:
        fields.fail('prompt', 'send it or messages, not both')
      template, text = chat.render(self, profile_of(self.model).template)
      return text, self._adds_start(template.adds_start)
    if self.prompt is None:
      fields.fail('prompt', 'it is missing. Send a text, or messages')
    for name in _OF_MESSAGES:
      if getattr(self, name) is not None:
        fields.fail(name, 'it requires messages')
    return self.prompt, self._adds_start(True)

  def _adds_start(self, default: bool) -> bool:
    given = self.add_special_tokens
    return default if given is None else given


class Detokenize(fields.Request):
  """A request of /detokenize, in vLLM's format."""

  tokens: sampling.Ids
  model: str | None = None


class Predict(fields.Request):
  """A request in Vertex AI's format: instances that share parameters."""

  instances: Annotated[
    list[dict[str, Any]],
    msgspec.Meta(
      min_length=1,
      max_length=_MOST_INSTANCES,
      description="each with a completion's or a chat completion's fields",
    ),
  ]
  parameters: (
    Annotated[
      dict[str, Any], msgspec.Meta(description='fields of all instances')
    ]
    | None
  ) = None

  def forms(
    self, profile_of: templates.ProfileOf, unknown: fields.UnknownFields
  ) -> list[form.Form]:
    """Returns the form of each instance.

    An instance has the parameters of /v1/completions, or with "messages" those
    of /v1/chat/completions. Its own parameters take precedence over the shared
    ones.

    Raises:
      problems.BadRequest: A parameter is invalid or not supported.
    """
    forms: list[form.Form] = []
    end = time.monotonic() + _RENDER_SECS
    for i, instance in enumerate(self.instances):
      whole = {**(self.parameters or {}), **instance}
      if whole.get('stream'):
        fields.fail('stream', 'predictions are not streamed. Omit it')
      if time.monotonic() > end:
        fields.fail(
          'instances',
          f'only {i} of {len(self.instances)} could be parsed within'
          f' {_RENDER_SECS:g} s. Send fewer at a time',
        )
      if 'messages' in instance:
        chats = fields.read(whole, chat.Request, unknown=unknown)
        forms.append(chat.ChatForm.from_request(chats, profile_of))
        continue
      prompt = fields.read(whole, completions.Request, unknown=unknown)
      forms.append(completions.CompletionForm.from_request(prompt, profile_of))
      if len(forms[-1].prompts) > 1:
        fields.fail(f'instances[{i}].prompt', 'send one prompt per instance')
    return forms
