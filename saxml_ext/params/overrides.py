"""Overrides: attributes of serving params set at publish time.

`saxutil publish id path ckpt 1 BATCH_SIZE=8 BUCKET_KEYS=[256,512]` sends each
value as text, meant to be JSON. Rules, as in Sax: an unknown attribute or
invalid JSON is warned about and left out (admin servers have keys of their
own, such as `ram`), and a value of another type than the current one is
refused, where int and float differ and None goes with everything.
"""

from collections.abc import Iterable, Mapping
import json
import re
from typing import Any

from absl import logging

from saxml_ext.common import errors

# Public attributes alone, so that no override replaces a method.
_ATTRIBUTE = re.compile(r'[A-Z][A-Z0-9_]*', re.ASCII)


def apply(params: type, overrides: Mapping[str, str]) -> type:
  """Returns a subclass of `params` with the overrides set.

  Args:
    params: a serving params class; it is left as it is.
    overrides: attribute name -> value as JSON.

  Raises:
    errors.InvalidArgument: a value's type is not the attribute's.
  """
  changes = {}
  for name, text in overrides.items():
    if not _ATTRIBUTE.fullmatch(name) or not hasattr(params, name):
      logging.warning(
        'override %s is left out: %s has no such attribute',
        name,
        params.__name__,
      )
      continue
    try:
      value = json.loads(text)
    except (ValueError, RecursionError) as e:
      logging.warning(
        'override %s=%s is left out: not JSON (%s)', name, text, e
      )
      continue
    _check_type(params, name, value)
    changes[name] = value
  if not changes:
    return params
  return type(params.__name__, (params,), changes)


def of_flags(params: type, texts: Iterable[str]) -> dict[str, str]:
  """Overrides as a program's --override flags give them.

  `apply` leaves out what it does not know, because admin servers have keys of
  their own; whoever types such a flag has mistyped.

  Args:
    params: the serving params class that they are for.
    texts: NAME=JSON each.

  Returns:
    Attribute name -> value as JSON, for `apply`.

  Raises:
    errors.InvalidArgument: one is not of that form, or names no attribute.
  """
  found = {}
  for text in texts:
    name, _, value = text.partition('=')
    try:
      json.loads(value)
    except (ValueError, RecursionError) as e:
      raise errors.InvalidArgument(
        f'--override={text} is not of the form NAME=JSON ({e}); write for'
        ' example BATCH_SIZE=8, BUCKET_KEYS=[256,512] or QUANTIZATION="int8",'
        ' quoted for your shell'
      ) from e
    if not _ATTRIBUTE.fullmatch(name) or not hasattr(params, name):
      raise errors.InvalidArgument(
        f'--override={text}: {params.__name__} has no attribute {name}; see'
        ' docs/serving_params.md for those there are'
      )
    found[name] = value
  return found


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
  return ''
