"""Overrides: attributes of serving params set at publish time.

`saxutil publish id path ckpt 1 BATCH_SIZE=8 BUCKET_KEYS=[256,512]` sends each
value as text, meant to be JSON. Rules, as in Sax: an unknown attribute or
invalid JSON is warned about and left out (admin servers have keys of their
own, such as `ram`), and a value of another type than the current one is
refused, where int and float differ and None goes with everything. Beyond Sax,
an attribute that holds a text takes it without quotation marks, too.
"""

from collections.abc import Iterable, Mapping
import json
import re
import typing
from typing import Any

from absl import logging

from saxml_ext.common import errors
from saxml_ext.common import ids
from saxml_ext.params import registry
from saxml_ext.params import template

# Public attributes alone, so that no override replaces a method.
_ATTRIBUTE = re.compile(r'[A-Z][A-Z0-9_]*', re.ASCII)
# Those that the admin server reads, see docs/saxutil.md.
ADMIN_KEY = re.compile(r'ram\d*|constraints', re.ASCII)
# Nobody reads more, and each unknown name is compared with all attributes.
_MOST_PROBLEMS = 20


def apply(params: type, overrides: Mapping[str, str]) -> type:
  """Returns a subclass of `params` with the overrides set.

  Args:
    params: a serving params class; it is left as it is.
    overrides: attribute name -> value as JSON, or as a bare text.

  Raises:
    errors.InvalidArgument: a value's type is not the attribute's.
  """
  changes = {}
  for name, text in overrides.items():
    if ADMIN_KEY.fullmatch(name):
      continue
    try:
      value = _value(params, name, text)
    except _NoEffect as e:
      logging.warning('%s', e)
      continue
    _check_type(params, name, value)
    changes[name] = value
  if not changes:
    return params
  return type(params.__name__, (params,), changes)


def problems(params: type, overrides: Mapping[str, str]) -> list[str]:
  """Returns one message per override that `apply` leaves out or refuses.

  Args:
    params: The serving params class that they are for.
    overrides: Attribute name -> value as JSON, or as a bare text. After 20
      messages no more are checked.
  """
  found: list[str] = []
  for name, text in overrides.items():
    if ADMIN_KEY.fullmatch(name):
      continue
    if len(found) == _MOST_PROBLEMS:
      break
    try:
      _check_type(params, name, _value(params, name, text))
    except _NoEffect as e:
      found.append(str(e))
    except errors.InvalidArgument as e:
      found.append(e.message)
  return found


# The next two find likely mistakes before a server loads a model. Servers with
# other params may join a cell, so that a finding is a warning.


def in_overrides(model_path: str, overrides: Mapping[str, str]) -> list[str]:
  """Returns one message per override that a server leaves out or refuses.

  Args:
    model_path: Registered name of the serving params. Of unknown ones only
      slips in the names of common attributes are found.
    overrides: Attribute name -> value as JSON, or as a bare text.
  """
  known = model_path in registry.names()
  params = registry.lookup(model_path) if known else template.ServableLMParams
  found = problems(params, overrides)
  return found if known else [text for text in found if 'Did you mean' in text]


def in_path(model_path: str) -> str:
  """Returns a message if a model path looks like a slip, else ''."""
  known = registry.names()
  near = ids.near_misses(model_path, known)
  if model_path in known or not near:
    return ''
  return (
    f'no serving params are known as {model_path}. Did you mean'
    f' {" or ".join(near)}?'
  )


def of_flags(params: type, texts: Iterable[str]) -> dict[str, str]:
  """Returns the overrides that a program's --override flags give.

  `apply` leaves out what it does not know, because admin servers have keys of
  their own. A flag has no other meaning, so a mistake in it is an error.

  Args:
    params: The serving params class that they are for.
    texts: KEY=VALUE each, the value as JSON or as a bare text.

  Returns:
    Attribute name -> value as JSON, for `apply`.

  Raises:
    errors.InvalidArgument: One is not of that form, or names no attribute.
  """
  found = {}
  for text in texts:
    name, _, value = text.partition('=')
    try:
      found[name] = json.dumps(_value(params, name, value))
    except _NoEffect as e:
      raise errors.InvalidArgument(
        f'--override={text}: {e} Write KEY=VALUE, for example BATCH_SIZE=8,'
        ' BUCKET_KEYS=[256,512] or QUANTIZATION=int8, quoted for your shell.'
      ) from e
  return found


class _NoEffect(Exception):
  """An override is left out, because it names no attribute or has no value."""


def _value(params: type, name: str, text: str) -> Any:
  """Returns the value that an override's text stands for.

  The text is JSON. An attribute that holds a text also takes it bare.

  Raises:
    _NoEffect: The attribute does not exist, or the text is not a value.
  """
  if not _ATTRIBUTE.fullmatch(name) or not hasattr(params, name):
    near = ids.near_misses(
      name, list(filter(_ATTRIBUTE.fullmatch, dir(params)))
    )
    hint = (
      f'Did you mean {" or ".join(near)}?'
      if near
      else 'docs/serving_params.md lists the attributes.'
    )
    raise _NoEffect(
      f'override {name} is left out: {params.__name__} has no such attribute.'
      f' {hint}'
    )
  try:
    return json.loads(text)
  except (ValueError, RecursionError) as e:
    if _takes_text(params, name) and not text.startswith(('"', '[', '{')):
      return text
    raise _NoEffect(
      f'override {name}={text} is left out: the value is not JSON ({e}).'
    ) from e


def _takes_text(params: type, name: str) -> bool:
  current = getattr(params, name)
  if current is None:
    return str in typing.get_args(typing.get_type_hints(params).get(name))
  return isinstance(current, str)


def _check_type(params: type, name: str, value: Any) -> None:
  current = getattr(params, name)
  if value is None or current is None:
    return
  # A class may hold a tuple where JSON only knows lists.
  expected = list if isinstance(current, tuple) else type(current)
  if type(value) is expected:
    return
  raise errors.InvalidArgument(
    f'override {name}={json.dumps(value)} is of type'
    f' {type(value).__name__}, but {params.__name__}.{name} is'
    f' {current!r}, of type {expected.__name__}; publish it with a value of'
    f' that type{_example(expected, value)}'
  )


def _example(expected: type, value: Any) -> str:
  """A corrected value in parentheses where there is an obvious one."""
  number = type(value) in (int, float)
  if expected is float and number:
    return f' ({float(value)})'
  if expected is int and number and float(value).is_integer():
    return f' ({int(value)})'
  if expected is list and number:
    return f' ([{value}])'
  if expected is str and number:
    return f' ("{value}")'
  return ''
