"""Renders the chat templates of checkpoints: Jinja, in a sandbox.

The operator of the gateway names the file with a flag. Requests cannot send a
template. Without the flag, no template is read.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
import dataclasses
import datetime
import json
import pathlib
import traceback
from typing import Any, NoReturn

import jinja2
from jinja2 import ext
from jinja2 import nodes
from jinja2 import parser as parser_lib
from jinja2 import sandbox

from saxml_ext.common import errors
from saxml_ext.common import special_tokens
from saxml_ext.http.protocol import messages as messages_lib
from saxml_ext.http.protocol import problems

_TEMPLATE_FILE = 'chat_template.jinja'
_CONFIG_FILE = 'tokenizer_config.json'
_SPECIAL_TOKENS_FILE = 'special_tokens_map.json'
_TOKENIZER_FILE = 'tokenizer.json'
# Templates may use Hugging Face's names of special tokens.
_TOKENS = tuple(
  f'{name}_token' for name in ('bos', 'eos', 'unk', 'sep', 'pad', 'cls', 'mask')
)
# A checkpoint with several templates has one of this name, and one for tools.
_DEFAULT, _TOOL_USE = 'default', 'tool_use'
# The variables that `render` sets.
_OWN_VARIABLES = ('messages', 'tools', 'documents', 'add_generation_prompt')


@dataclasses.dataclass(frozen=True)
class _Source:
  """A compiled template and its features."""

  template: jinja2.Template
  features: messages_lib.Features


class _Refused(jinja2.TemplateError):
  """The error of a template that does not accept a conversation."""


class CheckpointTemplate:
  """Renders conversations like transformers' `apply_chat_template`.

  Attributes:
    stops: The texts that end an answer. It is empty, because the model's own
      stop ids end answers.
    reserved: The special tokens of the tokenizer, which are plain text in
      messages.
    adds_start: False, because the template writes the model's start token.
    is_chat: True, because only models that hold conversations have a template.
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
    """Compiles the templates.

    Args:
      sources: The Jinja text of each template, by name.
      tokens: The special tokens by name, for example "bos_token".
      path: The path of the template file, for error messages.
      special: The special tokens without a name.

    Raises:
      errors.InvalidArgument: A template is not valid Jinja.
    """
    self._path = path
    self._tokens = tokens
    self.reserved = tuple(
      dict.fromkeys(filter(None, [*tokens.values(), *special]))
    )
    self._sources = {
      name: self._compiled(text) for name, text in sources.items()
    }

  def _compiled(self, source: str) -> _Source:
    environment = _environment()
    try:
      tree = environment.parse(source, filename=self._path)
      code = environment.compile(tree, filename=self._path)
    except jinja2.TemplateSyntaxError as e:
      raise errors.InvalidArgument(
        f'The chat template in {self._path} is not valid Jinja: line'
        f' {e.lineno}: {e.message}. Fix the file or name another one.'
      ) from e
    template = jinja2.Template.from_code(
      environment, code, environment.make_globals(None)
    )
    return _Source(template, _features(tree))

  @property
  def reserved_variables(self) -> Collection[str]:
    """The variables that requests cannot set."""
    functions = self._sources[_DEFAULT].template.globals
    return {*_OWN_VARIABLES, *_TOKENS, *self._tokens, *functions}

  def features(self, has_tools: bool) -> messages_lib.Features:
    """Returns the features for requests with or without tools."""
    return self._source(has_tools).features

  def _source(self, has_tools: bool) -> _Source:
    name = _TOOL_USE if has_tools and _TOOL_USE in self._sources else _DEFAULT
    return self._sources[name]

  def render(
    self,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Any] | None = None,
    variables: Mapping[str, Any] | None = None,
  ) -> str:
    """Returns the prompt that the assistant's next message continues.

    Args:
      messages: The conversation, in the form that `messages.normalize` returns.
      tools: The descriptions of functions; None if there are none.
      variables: The additional variables for the template.

    Raises:
      problems.BadRequest: The template rejects the conversation or fails.
    """
    try:
      return self._source(bool(tools)).template.render(
        {**self._tokens, **(variables or {})},
        messages=messages,
        tools=tools,
        documents=None,
        add_generation_prompt=True,
      )
    # Templates are programs, so they can raise any Python error.
    except Exception as e:  # pylint: disable=broad-exception-caught
      verb = 'does not accept' if isinstance(e, _Refused) else 'cannot render'
      raise problems.BadRequest(
        f'The chat template {self._path} {verb} these messages: line'
        f' {self._line(e)}: {e}',
        param='messages',
      ) from e

  def _line(self, error: Exception) -> int | None:
    """Returns the line of the template where an error was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f.lineno for f in frames if f.filename == self._path]
    return lines[-1] if lines else None


class _Generation(ext.Extension):
  """Accepts {% generation %}, which marks the assistant's part for training."""

  tags = {'generation'}

  def parse(self, parser: parser_lib.Parser) -> nodes.Node:
    line = next(parser.stream).lineno
    body = parser.parse_statements(('name:endgeneration',), drop_needle=True)
    return nodes.Scope(body, lineno=line)


def _environment() -> jinja2.Environment:
  made = sandbox.ImmutableSandboxedEnvironment(
    trim_blocks=True,
    lstrip_blocks=True,
    extensions=[_Generation, ext.loopcontrols],
  )
  made.filters['tojson'] = _to_json
  made.globals['raise_exception'] = _raise
  made.globals['strftime_now'] = lambda form: datetime.datetime.now().strftime(
    form
  )
  return made


def _to_json(
  value: Any,
  ensure_ascii: bool = False,
  indent: int | None = None,
  separators: tuple[str, str] | None = None,
  sort_keys: bool = False,
) -> str:
  """Returns JSON without HTML escapes, as transformers does."""
  return json.dumps(
    value,
    ensure_ascii=ensure_ascii,
    indent=indent,
    separators=separators,
    sort_keys=sort_keys,
  )


def _raise(message: str) -> NoReturn:
  raise _Refused(message)


def _features(tree: nodes.Template) -> messages_lib.Features:
  """Returns the features of a template, by the names in its code."""
  names = {node.name for node in tree.find_all(nodes.Name)}
  names |= {node.attr for node in tree.find_all(nodes.Getattr)}
  texts = {
    node.value
    for node in tree.find_all(nodes.Const)
    if isinstance(node.value, str)
  }
  roles = {
    node.value
    for comparison in tree.find_all(nodes.Compare)
    for node in comparison.find_all(nodes.Const)
    if isinstance(node.value, str)
  }
  return messages_lib.Features(
    roles=frozenset(roles),
    has_tools='tools' in names,
    has_tool_calls='tool_calls' in names | texts,
  )


def load(path: str) -> CheckpointTemplate:
  """Loads the template of a checkpoint.

  Args:
    path: The path of a Jinja file, of a JSON file with `chat_template` such as
      tokenizer_config.json, or of the directory of a tokenizer. The special
      tokens are read from the tokenizer_config.json in the same directory.

  Raises:
    errors.InvalidArgument: There is no template, or it is malformed.
  """
  found = pathlib.Path(path)
  directory = found if found.is_dir() else found.parent
  if found.is_dir():
    found = directory / _TEMPLATE_FILE
    if not found.exists():
      found = directory / _CONFIG_FILE
  config = _object(directory / _SPECIAL_TOKENS_FILE)
  config |= _object(directory / _CONFIG_FILE)
  if found.suffix == '.json':
    sources = _sources(_object(found).get('chat_template'), found)
  else:
    sources = {_DEFAULT: _text(found)}
  declared = special_tokens.declared(
    str(directory), lambda path: _object(pathlib.Path(path))
  )
  special = [token.text for token in declared.tokens if token.special]
  if not config.get('added_tokens_decoder'):
    tokens = _object(directory / _TOKENIZER_FILE).get('added_tokens') or ()
    special += [token['content'] for token in tokens if token.get('special')]
  names = dict(_special_tokens(config))
  return CheckpointTemplate(sources, names, str(found), special)


def _sources(value: Any, path: pathlib.Path) -> dict[str, str]:
  """Returns the templates in a JSON file, which has a text or a list."""
  if isinstance(value, str):
    return {_DEFAULT: value}
  try:
    found = {str(item['name']): str(item['template']) for item in value or ()}
  except (KeyError, TypeError) as e:
    raise errors.InvalidArgument(
      f'The chat_template in {path} is neither a text nor a list of named'
      ' templates.'
    ) from e
  if _DEFAULT not in found:
    raise errors.InvalidArgument(
      f'{path} has no chat_template. Pass a file that has one, or a template'
      ' of this gateway.'
    )
  return found


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


def _object(path: pathlib.Path) -> dict[str, Any]:
  """Returns the JSON object in a file, or {} if there is no such file."""
  if not path.exists():
    return {}
  try:
    value = json.loads(_text(path))
  except ValueError as e:
    raise errors.InvalidArgument(f'{path} is not valid JSON: {e}') from e
  if not isinstance(value, dict):
    raise errors.InvalidArgument(f'{path} is not a JSON object.')
  return value


def _text(path: pathlib.Path) -> str:
  try:
    return path.read_text(encoding='utf-8')
  except (OSError, UnicodeDecodeError) as e:
    raise errors.InvalidArgument(f'{path} cannot be read: {e}') from e
