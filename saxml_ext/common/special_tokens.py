"""Reads the special tokens of a tokenizer, and splits texts at them.

One rule holds for all kinds of tokenizers. The special tokens are the control
tokens of the tokenizer's own file, and the tokens that Hugging Face's files
beside it declare: tokenizer_config.json, special_tokens_map.json and
added_tokens.json. The last one has no flags. A token that looks like a mark, for
example <|im_end|>, is special there.

A special token in a text stands for its id. Inside a literal span, such as the
text of a user in a rendered chat template, it is ordinary text.
"""

import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence
import dataclasses
import os
import re
from typing import Any

from saxml_ext.common import errors

# The start and the end of a part of a text, in characters.
Span = tuple[int, int]

_CONFIG = 'tokenizer_config.json'
_NAMES = 'special_tokens_map.json'
_ADDED = 'added_tokens.json'
# The keys of special tokens, in the order in which transformers adds them.
NAMED = tuple(
  f'{name}_token' for name in ('bos', 'eos', 'unk', 'sep', 'pad', 'cls', 'mask')
)
_LISTED = ('extra_special_tokens', 'additional_special_tokens')
_MARK = re.compile(r'<[^<>]+>|\[[^\[\]]+\]')
_BLANKS = re.compile(r'\s+')


@dataclasses.dataclass(frozen=True)
class Token:
  """A token that a text contains as a whole.

  Attributes:
    text: The text of the token.
    id: The id, or None if only the tokenizer's own file has it.
    special: True if answers do not show it.
    lstrip: True if the white space before it belongs to it.
    rstrip: True if the white space after it belongs to it.
  """

  text: str
  id: int | None = None
  special: bool = True
  lstrip: bool = False
  rstrip: bool = False

  @property
  def is_mark(self) -> bool:
    """True if it has no effect in a literal span."""
    return self.special or bool(_MARK.fullmatch(self.text))


@dataclasses.dataclass(frozen=True)
class Declared:
  """The declarations in the files beside a tokenizer.

  Attributes:
    tokens: The tokens. If several have the same text or id, the first one
      applies.
    adds_start: True if the tokenizer adds its start token, if it has one.
    prefixes_all: True if SentencePiece adds a blank not only before the first
      word of a text, but also after each added token. Hugging Face calls this
      "legacy".
    adds_end: True if the tokenizer adds its end token to each text.
  """

  tokens: Sequence[Token] = ()
  adds_start: bool = True
  prefixes_all: bool = False
  adds_end: bool = False


# The declarations of a tokenizer without such files.
NOTHING = Declared()


def declared(
  directory: str, read: Callable[[str], Mapping[str, Any]]
) -> Declared:
  """Reads the files of the tokenizer in a directory.

  Args:
    directory: The directory.
    read: A function that returns the JSON object at a path, or {} if there is
      no file.

  Raises:
    errors.InvalidArgument: A file does not have Hugging Face's format.
  """
  config = merged(directory, read)
  added = read(os.path.join(directory, _ADDED))
  try:
    named = [_token(value) for value in _named(config)]
    special = {token.text for token in named}
    values = config.get('added_tokens_decoder') or {
      key: {'content': text, 'special': _MARK.fullmatch(text)}
      for text, key in added.items()
    }
    tokens = [_token(value, int(key), special) for key, value in values.items()]
    tokens.sort(key=lambda token: token.id or 0)
  except (AttributeError, KeyError, TypeError, ValueError) as e:
    raise errors.InvalidArgument(
      f'The special tokens in {directory} cannot be read: {e!r}. Copy {_CONFIG},'
      f' {_NAMES} and {_ADDED} of the original model again, or remove them.'
    ) from e
  return Declared(
    [*tokens, *named],
    bool(config.get('add_bos_token', True)),
    bool(config.get('legacy', False)),
    bool(config.get('add_eos_token', False)),
  )


def merged(
  directory: str, read: Callable[[str], Mapping[str, Any]]
) -> dict[str, Any]:
  """Returns the entries of tokenizer_config.json and special_tokens_map.json.

  As in transformers, the second file has precedence, unless the first one has an
  `added_tokens_decoder`.

  Args:
    directory: The directory.
    read: The function of `declared`.
  """
  config, names = (read(os.path.join(directory, n)) for n in (_CONFIG, _NAMES))
  if 'added_tokens_decoder' in config:
    return {**names, **config}
  return {**config, **names}


def _named(file: Mapping[str, Any]) -> list[Any]:
  """Returns the special tokens in a file, which are texts or objects."""
  values = [file[key] for key in NAMED if file.get(key)]
  for key in _LISTED:
    listed = file.get(key) or []
    values += listed.values() if isinstance(listed, dict) else listed
  return values


def _token(
  value: Any, key: int | None = None, special: Iterable[str] = ()
) -> Token:
  if isinstance(value, str):
    return Token(value)
  text = str(value['content'])
  return Token(
    text,
    key,
    key is None or text in special or bool(value.get('special')),
    bool(value.get('lstrip')),
    bool(value.get('rstrip')),
  )


class Splitter:
  """Splits texts at tokens."""

  def __init__(self, tokens: Iterable[Token]):
    """Stores the tokens that have ids."""
    self._tokens = {
      token.text: (token, token.id)
      for token in tokens
      if token.text and token.id is not None
    }
    # A longer token comes before one that it begins with.
    texts = sorted(self._tokens, key=len, reverse=True)
    self._pattern = re.compile('|'.join(map(re.escape, texts)) or '(?!)')

  def split(
    self, text: str, literal: Sequence[Span] = ()
  ) -> tuple[list[str], list[int], bool]:
    """Splits a text.

    Args:
      text: The text.
      literal: The spans in which marks are ordinary text, in ascending order.

    Returns:
      The texts; the ids of the tokens between them; and True if marks in
      literal spans were left in the texts.
    """
    texts: list[str] = []
    ids: list[int] = []
    has_literal = False
    starts = [start for start, _ in literal]
    position = end = 0
    while match := self._pattern.search(text, position):
      token, token_id = self._tokens[match[0]]
      i = bisect.bisect_left(starts, match.end())
      if i and match.start() < literal[i - 1][1] and token.is_mark:
        has_literal = True
        position = match.start() + 1
        continue
      before = text[end : match.start()]
      texts.append(before.rstrip() if token.lstrip else before)
      ids.append(token_id)
      position = end = match.end()
      if token.rstrip and (blanks := _BLANKS.match(text, end)):
        end = blanks.end()
    return [*texts, text[end:]], ids, has_literal
