r"""Checks ids, paths and counts, and suggests names for unknown ones.

A cell is "/sax/<cell>", a model "/sax/<cell>/<model>". The rules are ASCII
rules, and a pattern must match the whole text: "a\n" and "é" are refused.
"""

from collections.abc import Collection
import dataclasses
import difflib
import json
import re

from saxml_ext.common import errors

_NAME = r'^[a-z]+[a-z0-9-_]*$'
_MODEL_PATH = r'^[a-zA-Z]+[a-zA-Z0-9_.-]*$'
_CHECKPOINT_PATH = r'^(/|\d|\w|_|\.|-|%|:|=|\||\+)+$'
_FS_ROOT = r'^[a-zA-Z0-9_./=-]+$'
# Replica counts are int32 on the wire.
_MAX_REPLICAS = 2**31 - 1
# The largest number of suggestions for an unknown name.
_MOST_NEAR = 3
_CUTOFF = 0.75
_MAX_LENGTH = 300
# The limits of names and of paths in characters. Paths end here on Linux.
_MAX_NAME = 512
_MAX_PATH = 4096
# Messages repeat no more of a text, because gRPC limits their size.
_MAX_QUOTED = 100


@dataclasses.dataclass(frozen=True)
class CellId:
  """The id of a cell: `str(CellId('test'))` is "/sax/test"."""

  name: str

  def __str__(self) -> str:
    return f'/sax/{self.name}'


@dataclasses.dataclass(frozen=True)
class ModelId:
  """The id of a model in a cell.

  Attributes:
    cell: The full id of the cell, such as "/sax/test".
    model: The name of the model within it, such as "gptj".
  """

  cell: str
  model: str

  def __str__(self) -> str:
    return f'{self.cell}/{self.model}'

  @property
  def braced(self) -> str:
    """The id in the format of the admin server's errors: "{test gptj}"."""
    cell = shorten(self.cell.removeprefix('/sax/'))
    return f'{{{cell} {shorten(self.model)}}}'


def shorten(text: str) -> str:
  """Returns a text for messages, without the end of a very long one."""
  if len(text) <= _MAX_QUOTED:
    return text
  return f'{text[:_MAX_QUOTED]}... ({len(text)} characters)'


def quote(text: str) -> str:
  """Returns the start of a text in double quotes, with escaped characters."""
  return json.dumps(shorten(text), ensure_ascii=False)


def _check(what: str, text: str, pattern: str, limit: int = _MAX_NAME) -> None:
  if len(text) > limit:
    raise errors.InvalidArgument(
      f'{what} {quote(text)} is too long. The limit is {limit} characters'
    )
  # `$` is removed because it would accept a final line break.
  if not re.fullmatch(pattern.strip('^$'), text, re.ASCII):
    raise errors.InvalidArgument(
      f'{what} {quote(text)} must match {quote(pattern)}'
    )


def parse_cell_id(text: str) -> CellId:
  """Parses "/sax/<cell>"; raises InvalidArgument."""
  parent, _, name = text.rpartition('/')
  if parent != '/sax':
    raise errors.InvalidArgument(
      f'cell full name {quote(text)} should have the form /sax/<cell name>'
    )
  _check('cell name', name, _NAME)
  return CellId(name)


def parse_model_id(text: str) -> ModelId:
  """Parses "/sax/<cell>/<model>"; raises InvalidArgument."""
  parent, slash, name = text.rpartition('/')
  if not slash:
    raise errors.InvalidArgument(
      f'model full name {quote(text)} should have the form '
      '/sax/<cell name>/<model name>'
    )
  _check('model name', name, _NAME)
  return ModelId(str(parse_cell_id(parent)), name)


def parse_cell_or_model_id(text: str) -> CellId | ModelId:
  """Parses either kind of id; raises InvalidArgument if it is neither."""
  try:
    return parse_cell_id(text)
  except errors.InvalidArgument:
    return parse_model_id(text)


def check_model_in_cell(text: str, cell: str) -> ModelId:
  """Parses a model id that must belong to `cell`; raises InvalidArgument."""
  model_id = parse_model_id(text)
  if model_id.cell != cell:
    raise errors.InvalidArgument(
      f'model {shorten(text)} must be within SAX cell {quote(cell)}'
    )
  return model_id


def check_model_path(text: str) -> None:
  """Checks a serving params' registered name; raises InvalidArgument."""
  _check('model path', text, _MODEL_PATH)


def check_checkpoint_path(text: str) -> None:
  """Checks a checkpoint's path or URL; raises InvalidArgument."""
  _check('checkpoint path', text, _CHECKPOINT_PATH, _MAX_PATH)


def check_fs_root(text: str) -> None:
  """Checks the fs_root of an updated config; raises InvalidArgument."""
  _check('FS root', text, _FS_ROOT, _MAX_PATH)


def check_replicas(count: int) -> None:
  """Checks a number of replicas; raises InvalidArgument."""
  if count < 0:
    raise errors.InvalidArgument(
      f'number of replicas {count} must be non-negative'
    )
  if count > _MAX_REPLICAS:
    raise errors.InvalidArgument(
      f'number of replicas {count} must be at most {_MAX_REPLICAS}'
    )


def near_misses(name: str, known: Collection[str]) -> list[str]:
  """Returns up to three known names that resemble `name`, best first.

  Args:
    name: A dotted name that is not known.
    known: All known names.
  """
  if len(name) > _MAX_LENGTH:
    return []
  # A user often types the class name alone, or under another module.
  tail = name.rpartition('.')[2].lower()
  ordered = sorted(n for n in known if len(n) <= _MAX_LENGTH)
  same_tail = [n for n in ordered if n.rpartition('.')[2].lower() == tail]
  near = difflib.get_close_matches(name, ordered, n=_MOST_NEAR, cutoff=_CUTOFF)
  return (same_tail + [n for n in near if n not in same_tail])[:_MOST_NEAR]
