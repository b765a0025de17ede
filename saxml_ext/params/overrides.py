"""Overrides: attributes of serving params that are set at publish time.

`saxutil publish id path ckpt 1 BATCH_SIZE=8 BUCKET_KEYS=[256,512]` sends each
value as text, which should be JSON. The rules are those of Sax:

- A model server ignores an unknown attribute or invalid JSON with a warning,
  because admin servers have their own keys, such as `ram`. The programs that
  publish a model refuse them first (`check`).
- A value must have the type of the current value. int and float are different
  types. None is compatible with every type.

In addition to Sax's rules, text attributes also accept a value without
quotation marks.
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

# Only public attributes match, so that no override replaces a method.
_ATTRIBUTE = re.compile(r'[A-Z][A-Z0-9_]*', re.ASCII)
# The keys that the admin server reads, see docs/saxutil.md.
ADMIN_KEY = re.compile(r'ram\d*|constraints', re.ASCII)
# A longer list would not help users, and each unknown name is compared with all
# attributes.
_MOST_PROBLEMS = 20


def apply(params: type, overrides: Mapping[str, str]) -> type:
  """Returns a subclass of `params` with the overrides set.

  Args:
    params: A serving params class, which is not changed.
    overrides: The attribute names and their values as JSON or as plain text.

  Raises:
    errors.InvalidArgument: A value does not have the type of the attribute.
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
  """Returns one message per override that `apply` ignores or refuses.

  Args:
    params: The serving params class.
    overrides: The attribute names and their values as JSON or as plain text.
      The check stops after 20 messages.
  """
  messages: list[str] = []
  for name, text in overrides.items():
    if ADMIN_KEY.fullmatch(name):
      continue
    if len(messages) == _MOST_PROBLEMS:
      break
    try:
      _check_type(params, name, _value(params, name, text))
    except _NoEffect as e:
      messages.append(str(e))
    except errors.InvalidArgument as e:
      messages.append(e.message)
  return messages


def check(model_path: str, overrides: Mapping[str, str]) -> None:
  """Checks overrides before a server starts or a model is published.

  Params of other servers are not checked, because their attributes are unknown
  here. For these, `find_mistakes` finds likely mistakes.

  Args:
    model_path: The name of the serving params.
    overrides: The attribute names and their values as JSON or as plain text.

  Raises:
    errors.InvalidArgument: A server would ignore or refuse an override.
  """
  if model_path in registry.names():
    if messages := find_mistakes(model_path, overrides):
      raise errors.InvalidArgument(' '.join(messages))


# The next two functions find likely mistakes before a server loads a model.
# Servers with other params may join a cell, so these findings are warnings.


def find_mistakes(model_path: str, overrides: Mapping[str, str]) -> list[str]:
  """Returns one message per override that a server ignores or refuses.

  Args:
    model_path: The registered name of the serving params. For unknown params,
      only misspelled names of common attributes are found.
    overrides: The attribute names and their values as JSON or as plain text.
  """
  known = model_path in registry.names()
  params = registry.lookup(model_path) if known else template.ServableLMParams
  texts = problems(params, overrides)
  return texts if known else [text for text in texts if 'Did you mean' in text]


def find_path_mistake(model_path: str) -> str:
  """Returns a message if a model path seems to be misspelled, else ''."""
  known = registry.names()
  near = ids.near_misses(model_path, known)
  if model_path in known or not near:
    return ''
  return (
    f'no serving params are named {model_path}. Did you mean'
    f' {" or ".join(near)}?'
  )


def from_flags(params: type, texts: Iterable[str]) -> dict[str, str]:
  """Returns the overrides in a program's --override flags.

  `apply` ignores unknown attributes, because admin servers have their own keys.
  A flag has no such keys, so a mistake in it is an error.

  Args:
    params: The serving params class.
    texts: The flags in the form KEY=VALUE, with values as JSON or as plain
      text.

  Returns:
    The attribute names and their values as JSON, for `apply`.

  Raises:
    errors.InvalidArgument: A flag has another form or an unknown attribute.
  """
  overrides = {}
  for text in texts:
    name, _, value = text.partition('=')
    try:
      overrides[name] = json.dumps(_value(params, name, value))
    except _NoEffect as e:
      raise errors.InvalidArgument(
        f'--override={text}: {e} Write KEY=VALUE, for example BATCH_SIZE=8,'
        ' BUCKET_KEYS=[256,512] or QUANTIZATION=int8, quoted for your shell.'
      ) from e
  return overrides


class _NoEffect(Exception):
  """An override is ignored, because its attribute or its value is invalid."""


def _value(params: type, name: str, text: str) -> Any:
  """Returns the value of an override's text.

  The text is JSON. For a text attribute, it may also be plain text.

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
      f'override {name} has no effect: {params.__name__} has no such'
      f' attribute. {hint}'
    )
  try:
    return json.loads(text)
  except (ValueError, RecursionError) as e:
    if _takes_text(params, name) and not text.startswith(('"', '[', '{')):
      return text
    raise _NoEffect(
      f'override {name}={text} has no effect: the value is not JSON ({e}).'
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
  # A class may have a tuple, but JSON only has lists.
  expected = list if isinstance(current, tuple) else type(current)
  if type(value) is expected:
    return
  raise errors.InvalidArgument(
    f'override {name}={json.dumps(value)} is of type {type(value).__name__},'
    f' but {params.__name__}.{name} is {current!r}, of type'
    f' {expected.__name__}. Publish it with a value of that'
    f' type{_example(expected, value)}.'
  )


def _example(expected: type, value: Any) -> str:
  """Returns a corrected value in parentheses, or '' if none is obvious."""
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
