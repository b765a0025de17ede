"""Finds the commands, flags and links of the documentation."""

from collections.abc import Iterator
import dataclasses
import pathlib
import re
import shlex

from tests.house import tree

_FENCE = '```'
# This matches the text between two commands of a line, and comments.
_NEXT = re.compile(r'\s(?:&&|\|\||;|\||&)(?:\s|$)|\s#.*')
_LINK = re.compile(r'\]\((?!https?:|#)([^)\s]+)\)')
_INLINE = re.compile(r'`([^`\n]+)`')
_FLAG = re.compile(r'(?<!\S)--([a-z][a-z0-9_-]*)')
_SETTING = re.compile(r'[A-Z_]+=\S*')


@dataclasses.dataclass(frozen=True)
class Command:
  """A command on a page.

  Attributes:
    source: The page and the line, such as `docs/cell.md:12`.
    words: The program and its arguments, without variables before it.
  """

  source: str
  words: tuple[str, ...]


def pages() -> list[pathlib.Path]:
  """Returns the pages of the documentation."""
  return [pathlib.Path('README.md')] + [
    path for path in tree.files('*.md') if path.parts[0] == 'docs'
  ]


def _read(page: pathlib.Path) -> list[str]:
  return (tree.ROOT / page).read_text(encoding='utf-8').splitlines()


def _split(line: str) -> Iterator[tuple[str, ...]]:
  for part in _NEXT.split(line):
    part = re.sub(r'^alias \w+=\S+', '', part.strip())
    try:
      words = shlex.split(part)
    except ValueError:
      continue  # It is output with a quotation mark.
    while words and _SETTING.fullmatch(words[0]):
      words.pop(0)
    if words:
      yield tuple(words)


def commands(page: pathlib.Path) -> Iterator[Command]:
  """Yields the commands in a page's code blocks and between backticks."""
  fenced, begun, number = False, '', 0
  for i, line in enumerate(_read(page), 1):
    if line.lstrip().startswith(_FENCE):
      fenced = not fenced
    elif fenced:
      if not begun:
        number = i
      begun += line.removesuffix('\\')
      if not line.endswith('\\'):
        for words in _split(begun):
          yield Command(f'{page}:{number}', words)
        begun = ''
    else:
      for text in _INLINE.findall(line):
        for words in _split(text):
          yield Command(f'{page}:{i}', words)


def links(page: pathlib.Path) -> Iterator[tuple[str, pathlib.Path]]:
  """Yields the source and the target of each link, relative to the root."""
  for i, line in enumerate(_read(page), 1):
    for target in _LINK.findall(line):
      yield f'{page}:{i}', page.parent / target.split('#')[0]


def inline_flags(page: pathlib.Path) -> Iterator[tuple[str, str]]:
  """Yields the source and the name of each flag between backticks.

  The names have no dashes.
  """
  fenced = False
  for i, line in enumerate(_read(page), 1):
    if line.lstrip().startswith(_FENCE):
      fenced = not fenced
    elif not fenced:
      for text in _INLINE.findall(line):
        for flag in _FLAG.findall(text):
          yield f'{page}:{i}', flag
