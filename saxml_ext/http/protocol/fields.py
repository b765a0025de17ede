"""Parses requests from JSON to structs, and checks types and ranges.

Clients send fields of many other servers. Fields that this server does not
know are ignored, as in vLLM. The log names each of them once, because it may be
a misspelled setting.
"""

from collections.abc import Collection, Iterator, Mapping
import difflib
import json
import logging
import re
from typing import Any, ClassVar, NoReturn, TypeVar

import msgspec

from saxml_ext.http.protocol import problems

# Maps the names of Python types to those of JSON types.
_KINDS = {
  'array': 'an array',
  'bool': 'a boolean',
  'float': 'a number',
  'int': 'a whole number',
  'object': 'an object',
  'str': 'a string',
}
_WRONG_TYPE = re.compile(r'Expected `([\w |]+)`, got')
_MISSING = re.compile(r'Object missing required field `(.*)`')
_PATH = re.compile(r' - at `\$\.?(.*)`$')
# The log names at most this many unknown fields, with this many characters
# each.
_MOST_LOGGED, _MOST_CHARACTERS = 100, 60
# Names with at least this similarity, from 0 to 1, may be misspelled.
_SIMILARITY = 0.75
_MOST_INT = 2**63
# The maximum number of arrays and objects in a body. Each takes 50 times the
# memory of its text, and slows down Python's garbage collection. Brackets in
# texts count too, because counting before parsing is fast.
_MOST_CONTAINERS = 50_000
# Errors of larger bodies do not name the field, because the search takes long.
_MOST_EXPLAINED = 2**16

# Unknown fields are ignored, so additionalProperties would be wrong.
_NOT_IN_SCHEMA = ('additionalProperties', 'default', 'title')

_logger = logging.getLogger('absl')  # absl's logger writes to stderr.


class Request(  # type: ignore[call-arg]
  msgspec.Struct, forbid_unknown_fields=True, kw_only=True
):
  """The base of the structs of requests; a field that is null counts as absent.

  Attributes:
    HARMLESS: The names of further fields that are accepted and ignored.
    NEUTRAL: The accepted values of further fields, by name. These values have
      no effect; the server does not support other values.
    RANGES: The minimum and the maximum of each number, by name.
    NESTED: The structs of fields that are objects, by name.
    ELSEWHERE: The fields of other routes, with a hint for the client.
  """

  HARMLESS: ClassVar[tuple[str, ...]] = ()
  NEUTRAL: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
  RANGES: ClassVar[Mapping[str, tuple[float, float]]] = {}
  NESTED: ClassVar[Mapping[str, type['Request']]] = {}
  ELSEWHERE: ClassVar[Mapping[str, str]] = {}


class UnknownFields:
  """Ignores or rejects the fields of requests that this server does not know.

  The log names each ignored field once.
  """

  def __init__(self, strict: bool = False):
    """Sets whether unknown fields are rejected."""
    self._strict = strict
    self._logged: set[str] = set()

  def report(self, name: str, known: Collection[str]) -> None:
    """Reports an unknown field of a request.

    Args:
      name: The name, with the names of the objects that contain it.
      known: The known fields of the same object.

    Raises:
      problems.BadRequest: Unknown fields are rejected.
    """
    short = name[:_MOST_CHARACTERS]
    # Names that are logged or rejected take time, but their number is limited.
    if not self._strict:
      if short in self._logged or len(self._logged) >= _MOST_LOGGED:
        return
      self._logged.add(short)
    nearest = difflib.get_close_matches(
      short.rpartition('.')[2], sorted(known), 1, _SIMILARITY
    )
    hint = f'. Did you mean {json.dumps(nearest[0])}?' if nearest else ''
    if self._strict:
      fail(short, f'this server has no such parameter{hint}')
    _logger.warning(
      'Requests have the field %s, which this server does not know and'
      ' ignores%s --strict_requests rejects such requests.',
      json.dumps(short),
      hint or '.',
    )


_STRICT = UnknownFields(strict=True)
_R = TypeVar('_R', bound=Request)


def parse_object(body: bytes) -> dict[str, Any]:
  """Returns the JSON object in the body of a request.

  Raises:
    problems.BadRequest: The body is not JSON, not an object, or has too many
    arrays and objects.
  """
  count = body.count(b'[') + body.count(b'{')
  if count > _MOST_CONTAINERS:
    raise problems.BadRequest(
      f'the body is too complex: it has {count} times [ or {{, more than the'
      f' limit of {_MOST_CONTAINERS}. Send less'
    )
  try:
    value = msgspec.json.decode(body)
  except (ValueError, RecursionError) as e:
    raise _malformed(body, e) from e
  if not isinstance(value, dict):
    raise problems.BadRequest(f'the body is {shown(value)}. Send an object')
  return value


def _malformed(body: bytes, error: Exception) -> problems.BadRequest:
  """Returns the error for a malformed body, with the invalid field if known."""
  where = None
  if len(body) > _MOST_EXPLAINED:
    return problems.BadRequest(f'the body is not valid JSON: {error}')
  try:
    value = json.loads(body)
    members = value if isinstance(value, dict) else {}
    for name, member in members.items():
      # Two values are rejected: a number beyond the range of a float, and half
      # of a surrogate pair, which is no character.
      items = member if isinstance(member, list) else [member]
      for i, item in enumerate(items):
        where = f'{name}[{i}]' if items is member else name
        json.dumps({name: item}, ensure_ascii=False, allow_nan=False).encode()
    where = None
  except ValueError as e:
    error = e
  except RecursionError:
    return problems.BadRequest(
      'the body is not valid JSON: it is nested too deeply'
    )
  prefix = f'{where!a}: ' if where else ''
  return problems.BadRequest(
    f'the body is not valid JSON: {prefix}{error}', param=where
  )


def fail(name: str, text: str) -> NoReturn:
  """Rejects the request because of a field."""
  raise problems.BadRequest(f'{name}: {text}', param=name)


def read(
  body: Mapping[str, Any],
  kind: type[_R],
  where: str = '',
  unknown: UnknownFields = _STRICT,
) -> _R:
  """Returns the struct of a JSON object.

  Args:
    body: The fields.
    kind: The class of the struct.
    where: The prefix of field names in messages, for example "messages[0].".
    unknown: The handler of unknown fields; by default, it rejects them.

  Raises:
    problems.BadRequest: A field is invalid or not supported.
  """
  left = dict(_effective(body, kind, where, unknown))
  try:
    request = msgspec.convert(left, kind)
  except msgspec.ValidationError as e:
    raise _problem(str(e), left, kind, where) from e
  for name, (least, most) in kind.RANGES.items():
    value = getattr(request, name)
    if value is not None and not least <= value <= most:
      fail(where + name, f'{shown(left[name])} is not from {least} to {most}')
  return request


def _effective(
  body: Mapping[str, Any],
  kind: type[Request],
  where: str,
  unknown: UnknownFields,
) -> Iterator[tuple[str, Any]]:
  """Yields the fields that have an effect, with whole numbers as integers."""
  known = {*kind.__struct_fields__, *kind.HARMLESS, *kind.NEUTRAL}
  for name, value in body.items():
    if value is None or name in kind.HARMLESS:
      continue
    if name in kind.ELSEWHERE:
      fail(where + name, kind.ELSEWHERE[name])
    if name not in known:
      unknown.report(where + name, known)
    elif name in kind.NEUTRAL:
      check_neutral(where + name, value, kind.NEUTRAL[name])
    elif name in kind.NESTED and isinstance(value, dict):
      inner = _effective(value, kind.NESTED[name], f'{where}{name}.', unknown)
      yield name, dict(inner)
    else:
      yield name, _whole(value)


def _whole(value: Any) -> Any:
  """Returns a value with numbers such as 5.0 as integers, also in arrays."""
  if isinstance(value, list):
    return [_whole(v) if isinstance(v, (float, list)) else v for v in value]
  if isinstance(value, float) and abs(value) < _MOST_INT and value.is_integer():
    return int(value)
  return value


def check_neutral(name: str, value: Any, neutral: tuple[Any, ...]) -> None:
  """Rejects a field unless it is absent or its value has no effect."""
  is_bool = isinstance(value, bool)
  if value is None or any(
    value == v and is_bool == isinstance(v, bool) for v in neutral
  ):
    return
  hint = f'. Omit it, or send {json.dumps(neutral[0])}' if neutral else ''
  fail(name, f'{shown(value)} is not supported by this server{hint}')


def _problem(
  text: str, body: Mapping[str, Any], kind: type[Request], where: str
) -> problems.BadRequest:
  """Returns the error for a validation message of msgspec."""
  match = _PATH.search(text)
  path = match[1] if match else ''
  text = _PATH.sub('', text)
  if match := _MISSING.match(text):
    name = f'{path}.{match[1]}' if path else match[1]
    return problems.BadRequest(f'{where}{name}: it is missing', where + name)
  value: Any = body
  for key, index in re.findall(r'(\w+)|\[(\d+)\]', path):
    value = value[int(index)] if index else value[key]
  name = where + re.sub(r'(\[\d+\])+$', '', path)
  reason = _reason(text, value, schema(kind)['properties'].get(path, {}))
  return problems.BadRequest(f'{name}: {reason}', param=name)


def _reason(text: str, value: Any, allowed: dict[str, Any]) -> str:
  """Returns why a value is invalid, by msgspec's message and the schema."""
  if match := _WRONG_TYPE.match(text):
    kinds = [_KINDS[kind] for kind in match[1].split(' | ') if kind in _KINDS]
    if kinds:
      return f'{shown(value)} is not {" or ".join(kinds)}'
  if 'of length >=' in text:
    return 'it is empty'
  if 'of length <=' in text:
    most = text.rpartition(' ')[2]
    return f'{len(value)} were sent, more than the limit of {most}'
  if text == 'Number out of range' and 'minimum' in allowed:
    least, most = allowed['minimum'], allowed['maximum']
    return f'{shown(value)} is not from {least} to {most}'
  if text.startswith('Invalid enum value'):
    choices = [
      *allowed.get('enum', ()),
      *(c for part in allowed.get('oneOf', ()) for c in part.get('enum', ())),
    ]
    if choices:
      return f'{shown(value)} is not one of {", ".join(map(str, choices))}'
  return f'{shown(value)} is not valid: {text}'


def schema(kind: type[Request]) -> dict[str, Any]:
  """Returns the JSON schema of a struct, without null values."""
  [root], parts = msgspec.json.schema_components([kind], ref_template='{name}')

  def plain(item: dict[str, Any]) -> dict[str, Any]:
    item = parts[item['$ref']] if '$ref' in item else item
    kept = {k: v for k, v in item.items() if k not in _NOT_IN_SCHEMA}
    choices = [c for c in kept.pop('anyOf', ()) if c != {'type': 'null'}]
    if len(choices) == 1:
      kept |= plain(choices[0])
    elif choices:
      kept['oneOf'] = [plain(choice) for choice in choices]
    if 'items' in kept:
      kept['items'] = plain(kept['items'])
    if 'properties' in kept:
      kept['properties'] = {k: plain(v) for k, v in kept['properties'].items()}
    return kept

  result = plain(root)
  for name, values in kind.NEUTRAL.items():
    result['properties'][name] = {'enum': [*values, None]}
  for name, (least, most) in kind.RANGES.items():
    result['properties'][name] |= {'minimum': least, 'maximum': most}
  for name in kind.HARMLESS:
    result['properties'][name] = {'description': 'accepted, without effect'}
  return result


def shown(value: Any) -> str:
  """Returns a value for a message, shortened if it is long."""
  try:
    text = json.dumps(value)
  except ValueError:  # The integer has thousands of digits.
    return 'the number'
  return text if len(text) <= 60 else f'{text[:57]}...'


def is_deeper(value: Any, most: int) -> bool:
  """Returns True if more levels of arrays and objects have items."""
  level = [value]
  for _ in range(most + 1):
    level = [
      child
      for item in level
      if isinstance(item, (list, dict))
      for child in (item.values() if isinstance(item, dict) else item)
    ]
    if not level:
      return False
  return True
