"""Compiles and renders the Jinja templates of checkpoints in a process.

  python -m saxml_ext.http.protocol.template_worker MEMORY_BYTES SECONDS

A template is a program of a stranger. Jinja's sandbox bounds neither its time
nor its memory, so this process has limits, and its parent replaces it. Requests
and answers are lines of JSON on the socket that is the standard input. The
process needs only Jinja, to start fast.
"""

from collections.abc import Mapping
import datetime
import io
import json
import resource
import signal
import socket
import sys
import traceback
from typing import Any, NoReturn

import jinja2
from jinja2 import ext
from jinja2 import nodes
from jinja2 import parser as parser_lib
from jinja2 import sandbox

from saxml_ext.http.protocol import hidden_tokens

# The maximum length of a prompt, and of an error message, in characters.
MOST_CHARACTERS = 8 * 2**20
_MOST_MESSAGE = 1000


def write(stream: io.BufferedRWPair, value: Any) -> None:
  """Writes a JSON value as a line."""
  stream.write(json.dumps(value).encode() + b'\n')
  stream.flush()


def read(stream: io.BufferedRWPair, most: int = -1) -> Any:
  """Returns the value in the next line.

  Args:
    stream: The stream.
    most: The maximum size, in bytes; -1 for no limit.

  Raises:
    EOFError: The other process has ended, or the value is larger.
  """
  line = stream.readline(most)
  if not line.endswith(b'\n'):
    raise EOFError()
  return json.loads(line)


class _Refused(jinja2.TemplateError):
  """The error of a template that does not accept a conversation."""


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


def _features(tree: nodes.Template) -> dict[str, Any]:
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
  return {
    'roles': sorted(roles),
    'has_tools': 'tools' in names,
    'has_tool_calls': 'tool_calls' in names | texts,
  }


class _Templates:
  """The compiled templates of one checkpoint."""

  def __init__(self, request: Mapping[str, Any]):
    """Compiles the templates that a request of the parent contains."""
    self._path: str = request['path']
    self._tokens: Mapping[str, str] = request['tokens']
    self._reserved: list[str] = request['reserved']
    self._templates: dict[str, jinja2.Template] = {}
    features: dict[str, Any] = {}
    for name, source in request['sources'].items():
      environment = _environment()
      tree = environment.parse(source, filename=self._path)
      features[name] = _features(tree)
      self._templates[name] = jinja2.Template.from_code(
        environment,
        environment.compile(tree, filename=self._path),
        environment.make_globals(None),
      )
    self.answer = {'features': features, 'functions': [*_environment().globals]}

  def render(self, request: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the parts of the prompt of a conversation, or an error."""
    tokens = hidden_tokens.HiddenTokens(self._reserved)
    try:
      pieces, size = [], 0
      for piece in self._templates[request['name']].generate(
        {**self._tokens, **tokens.hide(request['variables'])},
        messages=tokens.hide(request['messages']),
        tools=tokens.hide(request['tools']),
        documents=None,
        add_generation_prompt=True,
      ):
        pieces.append(piece)
        size += len(piece)
        if size > MOST_CHARACTERS:
          return {'limit': f'writes more than {MOST_CHARACTERS} characters'}
      text = ''.join(pieces)
      del pieces
      return {'parts': tokens.parts(text)}
    except MemoryError:
      raise
    # Templates are programs, so they can raise any Python error.
    except Exception as e:  # pylint: disable=broad-exception-caught
      frames = traceback.extract_tb(e.__traceback__)
      lines = [f.lineno for f in frames if f.filename == self._path]
      return {
        'error': f'line {lines[-1] if lines else None}: {e}'[:_MOST_MESSAGE],
        'refused': isinstance(e, _Refused),
      }


def _answer(
  request: Mapping[str, Any], loaded: dict[int, _Templates]
) -> dict[str, Any]:
  """Answers a request: it has a template's number, and sources or messages."""
  key = request['key']
  try:
    if 'sources' not in request:
      return loaded[key].render(request)
    loaded[key] = _Templates(request)
    return loaded[key].answer
  except jinja2.TemplateSyntaxError as e:
    return {'error': f'line {e.lineno}: {str(e.message)[:_MOST_MESSAGE]}'}
  except RecursionError:
    return {'error': 'it is nested too deeply'}


def _serve(stream: io.BufferedRWPair, secs: float) -> None:
  loaded: dict[int, _Templates] = {}
  while True:
    request = read(stream)
    # The signal ends this process, even if its parent has ended.
    signal.setitimer(signal.ITIMER_REAL, secs)
    answer = _answer(request, loaded)
    del request
    write(stream, answer)
    signal.setitimer(signal.ITIMER_REAL, 0)


def main() -> None:
  memory, secs = int(sys.argv[1]), float(sys.argv[2])
  # The parent ends this process by closing the socket.
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  signal.signal(signal.SIGTERM, signal.SIG_IGN)
  with open('/proc/self/statm', encoding='ascii') as file:
    memory += int(file.read().split()[0]) * resource.getpagesize()
  resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
  for kind in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE):
    resource.setrlimit(kind, (0, 0))
  with socket.socket(fileno=0) as connection:
    try:
      _serve(connection.makefile('rwb'), secs)
    except (EOFError, MemoryError, OSError):
      sys.exit(1)


if __name__ == '__main__':
  main()
