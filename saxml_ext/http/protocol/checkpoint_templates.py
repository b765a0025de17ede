"""Renders the chat templates of checkpoints: Jinja, in another process.

The operator of the gateway names the file with a flag. Requests cannot send a
template. Without the flag, no template is read.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
import itertools
import json
import pathlib
from typing import Any

from saxml_ext.common import errors
from saxml_ext.common import files
from saxml_ext.common import special_tokens
from saxml_ext.http.protocol import marks
from saxml_ext.http.protocol import messages as messages_lib
from saxml_ext.http.protocol import problems
from saxml_ext.http.protocol import template_pool
from saxml_ext.protobuf import completion_pb2

_TEMPLATE_FILE = 'chat_template.jinja'
_CONFIG_FILE = 'tokenizer_config.json'
_TOKENIZER_FILE = 'tokenizer.json'
# The largest usual tokenizer.json has 33 MB.
_MOST_FILE_BYTES = 64 * 2**20
# Templates may use Hugging Face's names of special tokens.
_TOKENS = special_tokens.NAMED
# A checkpoint with several templates has one of this name, and one for tools.
_DEFAULT, _TOOL_USE = 'default', 'tool_use'
# The variables that rendering sets.
_OWN_VARIABLES = ('messages', 'tools', 'documents', 'add_generation_prompt')


# The numbers of templates in the processes.
_keys = itertools.count(1)


class CheckpointTemplate:
  """Renders conversations like transformers' `apply_chat_template`.

  Attributes:
    stops: The texts that end an answer. It is empty, because the model's own
      stop ids end answers.
    reserved: The special tokens of the tokenizer, which are plain text in
      messages.
    adds_start: False, because the template writes the model's start token.
    is_chat: True, because only models that hold conversations have a template.
    reserved_variables: The variables that requests cannot set.
  """

  adds_start = False
  is_chat = True
  stops: tuple[str, ...] = ()

  def __init__(
    self,
    sources: Mapping[str, str],
    tokens: Mapping[str, str],
    path: str,
    special: Sequence[str] = (),
  ):
    """Compiles the templates in another process.

    Args:
      sources: The Jinja text of each template, by name.
      tokens: The special tokens by name, for example "bos_token".
      path: The path of the template file, for error messages.
      special: The special tokens without a name.

    Raises:
      errors.InvalidArgument: A template is not valid Jinja, or it takes too
      much time or memory.
    """
    self._path = path
    self.reserved = tuple(
      dict.fromkeys(filter(None, [*tokens.values(), *special]))
    )
    self._request = {
      'key': next(_keys),
      'path': path,
      'sources': dict(sources),
      'tokens': dict(tokens),
      'reserved': self.reserved,
    }
    try:
      answer = template_pool.ask(self._request)
    except template_pool.LimitError as e:
      raise errors.InvalidArgument(
        f'The chat template in {path} cannot be compiled: it {e}. Fix the file'
        ' or name another one.'
      ) from e
    except template_pool.BusyError as e:
      raise errors.Unavailable(f'{path} cannot be compiled: {e}.') from e
    if 'error' in answer:
      raise errors.InvalidArgument(
        f'The chat template in {path} is not valid Jinja: {answer["error"]}.'
        ' Fix the file or name another one.'
      )
    self._features = {
      name: messages_lib.Features(
        **values | {'roles': frozenset(values['roles'])}
      )
      for name, values in answer['features'].items()
    }
    # Requests cannot set these variables.
    self.reserved_variables: Collection[str] = {
      *_OWN_VARIABLES,
      *_TOKENS,
      *tokens,
      *answer['functions'],
    }

  def features(self, has_tools: bool) -> messages_lib.Features:
    """Returns the features for requests with or without tools."""
    return self._features[self._name(has_tools)]

  def _name(self, has_tools: bool) -> str:
    return _TOOL_USE if has_tools and _TOOL_USE in self._features else _DEFAULT

  def render(
    self,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Any] | None = None,
    variables: Mapping[str, Any] | None = None,
  ) -> str | completion_pb2.Segments:
    """Returns the prompt that the assistant's next message continues.

    Special tokens in the arguments become literal segments of the prompt. This
    method waits for a process, so it must not run on an event loop.

    Args:
      messages: The conversation, in the form that `messages.normalize` returns.
      tools: The descriptions of functions; None if there are none.
      variables: The additional variables for the template.

    Raises:
      problems.Problem: The template rejects the conversation, fails or exceeds
      a limit, or the processes are busy.
    """
    request = {
      'name': self._name(bool(tools)),
      'messages': messages,
      'tools': tools,
      'variables': variables or {},
    }
    try:
      answer = template_pool.ask(self._request, request)
    except template_pool.LimitError as e:
      raise problems.BadRequest(
        f'The chat template {self._path} {e} for these messages. Send fewer or'
        ' shorter ones, or serve the model with another template',
        param='messages',
      ) from e
    except template_pool.BusyError as e:
      raise problems.unavailable(f'{e}. Try again soon', 1.0) from e
    except (ValueError, RecursionError) as e:
      raise problems.BadRequest(
        f'the messages cannot be encoded as JSON: {e}', param='messages'
      ) from e
    if 'error' in answer:
      verb = 'does not accept' if answer.get('refused') else 'cannot render'
      raise problems.BadRequest(
        f'The chat template {self._path} {verb} these messages:'
        f' {answer["error"]}',
        param='messages',
      )
    return marks.prompt(answer['parts'])


def load(path: str) -> CheckpointTemplate:
  """Loads the template of a checkpoint.

  Args:
    path: The path of a Jinja file, of a JSON file with `chat_template` such as
      tokenizer_config.json, or of the directory of a tokenizer. The special
      tokens are read from the tokenizer_config.json in the same directory.

  Raises:
    errors.InvalidArgument: There is no template, or it is malformed.
  """
  file = pathlib.Path(path)
  directory = file if file.is_dir() else file.parent
  if file.is_dir():
    file = directory / _TEMPLATE_FILE
    if not file.exists():
      file = directory / _CONFIG_FILE
  config = special_tokens.merged(str(directory), _object)
  if file.suffix == '.json':
    sources = _sources(_object(file).get('chat_template'), file)
  else:
    sources = {_DEFAULT: _text(file)}
  declared = special_tokens.declared(str(directory), _object)
  special = [token.text for token in declared.tokens if token.special]
  if not config.get('added_tokens_decoder'):
    tokens = _object(directory / _TOKENIZER_FILE).get('added_tokens') or ()
    special += [token['content'] for token in tokens if token.get('special')]
  names = dict(_special_tokens(config))
  return CheckpointTemplate(sources, names, str(file), special)


def _sources(value: Any, path: pathlib.Path) -> dict[str, str]:
  """Returns the templates in a JSON file, which has a text or a list."""
  if isinstance(value, str):
    return {_DEFAULT: value}
  try:
    sources = {str(item['name']): str(item['template']) for item in value or ()}
  except (KeyError, TypeError) as e:
    raise errors.InvalidArgument(
      f'The chat_template in {path} is neither a text nor a list of named'
      ' templates.'
    ) from e
  if _DEFAULT not in sources:
    raise errors.InvalidArgument(
      f'{path} has no chat_template. Pass a file that has one, or a template'
      ' of this gateway.'
    )
  return sources


def _special_tokens(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
  for name in _TOKENS:
    value = config.get(name)
    text = value.get('content') if isinstance(value, dict) else value
    if isinstance(text, str):
      yield name, text
  added = config.get('added_tokens_decoder')
  for key, token in (added if isinstance(added, dict) else {}).items():
    if token.get('special'):
      yield f'added_token_{key}', token['content']


def _object(name: str | pathlib.Path) -> dict[str, Any]:
  """Returns the JSON object in a file, or {} if there is no such file."""
  path = pathlib.Path(name)
  if not path.exists():
    return {}
  try:
    value = json.loads(_text(path))
  except (ValueError, RecursionError) as e:
    raise errors.InvalidArgument(f'{path} is not valid JSON: {e}') from e
  if not isinstance(value, dict):
    raise errors.InvalidArgument(f'{path} is not a JSON object.')
  return value


def _text(path: pathlib.Path) -> str:
  try:
    return files.read_file(path, _MOST_FILE_BYTES).decode('utf-8')
  except (OSError, UnicodeDecodeError) as e:
    raise errors.InvalidArgument(f'{path} cannot be read: {e}') from e
