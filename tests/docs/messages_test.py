"""Tests that the error messages in the documentation are those of the sources.

A message is a line of a block without a language, or of what a command prints.
Every part of it must match a string literal; what a literal fills in may be
anything. A block below the comment `Message of PROGRAM` is of another project.
"""

import ast
from collections.abc import Iterator
import functools
import os
import pathlib
import re

from absl.testing import absltest

from tests.house import tree

_PAGE = 'docs/troubleshooting.md'
_FOREIGN = re.compile(r'<!-- Message of .+ -->')
_FENCE = re.compile(r'```(\w*)\n(.*?)^```', re.DOTALL | re.MULTILINE)
# The programs of this repository begin their messages with these words.
_PREFIX = re.compile(
  r'(?:Error|Warning|Note|[A-Z]+|ask|bazelw|convert\w*|gateway|[a-z_]*server|saxutil'
  r'|serve|verify_ckpt): '
)
# Filled in by %, by str.format or by an f-string, which `_text` marks with NUL.
_HOLE = re.compile(r'\0|%(?:\(\w+\))?[-+ 0-9.]*[sdrfgix]|\{[\w.!:,]*\}')
# What is filled in ends with its sentence. At the end of a literal, it has all
# that is left of the sentence.
_ANYTHING = r'(?:(?!\. [A-Z])[^\n]){0,300}'
# What is filled in has at most this many words that no literal has. It is a
# name, a path or a number.
_MOST_WORDS = 1
_WORD = re.compile(r'(?<![^\s(\'"])[A-Za-z]+(?=[.,:;?!)\'"]*(?:\s|$))')
# Literals with fewer words match parts of any sentence, so they only count as
# all of what another literal fills in.
_FEWEST_WORDS = 2
# gRPC's text of an address where nothing listens.
_GRPC = 'UNAVAILABLE: failed to connect to all addresses; last error: UNKNOWN:'
# `serve` removes the converters' flag from their messages.
_REMOVED = '--base='


def _text(node: ast.AST) -> str | None:
  """Returns the text of a literal, with NUL for the values of an f-string."""
  if isinstance(node, ast.Constant) and isinstance(node.value, str):
    return node.value
  if isinstance(node, ast.JoinedStr):
    return ''.join(_text(part) or '\0' for part in node.values)
  return None


def _literals(path: pathlib.Path, source: str) -> Iterator[str]:
  if path.suffix == '.py':
    for node in ast.walk(ast.parse(source)):
      if text := _text(node):
        # A quoted message is one line.
        yield from text.split('\n')
    return
  # A shell script: the arguments of `say` and `die`, and here documents.
  source = re.sub(r'"\s*\\?\n\s*"|\\\n\s*', ' ', source)
  source = re.sub(r'\$\{[^}]*\}|\$\([^)]*\)|(?<!\\)\$[\w*@]+', '\0', source)
  source = source.replace('\\$', '$')
  yield from re.findall(r'"([^"\n]*)"', source)
  yield from source.splitlines()


@functools.cache
def literals() -> dict[str, list[str]]:
  """Returns the fixed parts of all literals."""
  paths = [p for p in tree.files('*.py') if tree.is_production(p)]
  texts = {_GRPC, *map(os.strerror, range(1, 140))}
  for path in [*paths, pathlib.Path('bazelw')]:
    texts |= set(_literals(path, (tree.ROOT / path).read_text('utf-8')))
  texts |= {text.replace(_REMOVED, '') for text in texts}
  return {text: _HOLE.split(text) for text in texts if _WORD.search(text)}


def _is_sentence(parts: list[str]) -> bool:
  return sum(len(_WORD.findall(part)) for part in parts) >= _FEWEST_WORDS


def _is_value(text: str) -> bool:
  """Returns True if a text may be what a literal fills in."""
  if len(_WORD.findall(text)) <= _MOST_WORDS:
    return True
  return any(
    max(parts, key=len) in text and re.fullmatch(_pattern(parts), text)
    for parts in literals().values()
    if any(map(_WORD.search, parts))
  )


def _pattern(parts: list[str]) -> str:
  """Returns the pattern of a literal, with a group for each fixed part."""
  inner = rf'{_ANYTHING}?\.?'.join(f'({re.escape(part)})' for part in parts)
  begin = r'(?<!\w)' if parts[0][:1].isalnum() else ''
  end = r'(?!\w)' if parts[-1][-1:].isalnum() else ''
  return begin + inner + (end if parts[-1] else _ANYTHING)


def unmatched(message: str) -> str:
  """Returns the parts of a message that are in no literal; '' if it exists."""
  # NUL stands for what a literal has, and \1 for what it may fill in.
  marked = list(message)
  if prefix := _PREFIX.match(message):
    marked[: prefix.end()] = '\0' * prefix.end()
  for parts in literals().values():
    if max(parts, key=len) not in message or not _is_sentence(parts):
      continue
    for match in re.finditer(_pattern(parts), message):
      for i in range(*match.span()):
        marked[i] = '\0' if marked[i] == '\0' else '\1'
      for group in range(1, len(parts) + 1):
        begin, end = match.span(group)
        marked[begin:end] = '\0' * (end - begin)
  left = []
  for run in re.finditer('[^\0]+', ''.join(marked)):
    text = message[slice(*run.span())].strip(' .:')
    is_filled_in = set(run[0]) == {'\1'}
    if re.search(r'\w', text) and not (is_filled_in and _is_value(text)):
      left.append(text)
  return ' ... '.join(left)


def messages(page: str) -> Iterator[str]:
  """Yields the lines of blocks without a language, except foreign messages."""
  end = 0
  for block in _FENCE.finditer(page):
    is_ours = not _FOREIGN.search(page[end : block.start()])
    end = block.end()
    if is_ours and block[1] in ('', 'console'):
      yield from block[2].splitlines()


def wrapped(page: str) -> Iterator[str]:
  """Yields messages that begin like one and may be wrapped."""
  pending = ''
  for line in messages(page):
    if _PREFIX.match(line):
      pending = line
    elif pending and not line.startswith('$ '):
      pending += f' {line.strip()}'
    else:
      pending = ''
    if pending.endswith(('.', ')')):
      yield pending
      pending = ''


class MessagesTest(absltest.TestCase):
  def test_troubleshooting_quotes_messages_of_the_sources(self):
    page = (tree.ROOT / _PAGE).read_text('utf-8')
    quoted = list(messages(page))
    self.assertGreater(len(quoted), 20)
    unknown = {m: left for m in quoted if (left := unmatched(m))}
    self.assertEmpty(unknown, f'{_PAGE} quotes messages that no program prints')

  def test_other_pages_quote_messages_of_the_sources(self):
    unknown = {}
    for path in tree.files('*.md'):
      for message in wrapped((tree.ROOT / path).read_text('utf-8')):
        if left := unmatched(message):
          unknown[f'{path}: {message}'] = left
    self.assertEmpty(unknown)

  def test_changed_words_are_reported(self):
    message = 'serve: --port=1 --host=x: Choose another port with --port; 0'
    self.assertIn('tulips', unmatched(f'{message} tulips bloom early.'))


if __name__ == '__main__':
  absltest.main()
