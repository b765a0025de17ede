"""Numbers and durations as Go programs print and read them."""

import math
import re

from saxml_ext.common import errors

_UNITS = {
  'ns': 1e-9,
  'us': 1e-6,
  'µs': 1e-6,
  'ms': 1e-3,
  's': 1.0,
  'm': 60.0,
  'h': 3600.0,
}
_TERM = re.compile(r'(\d+\.?\d*|\.\d+)(ns|us|µs|ms|s|m|h)', re.ASCII)


def _special(value: float) -> str | None:
  if math.isnan(value):
    return 'NaN'
  if math.isinf(value):
    return '+Inf' if value > 0 else '-Inf'
  return None


def general(value: float) -> str:
  """Eight significant digits, "1.2345679E+08": Go's 'G' with precision 8."""
  return _special(value) or f'{value:.8G}'


def shortest(value: float) -> str:
  """Fewest digits that name the number, "-2", "1e+21": Go's %v."""
  if special := _special(value):
    return special
  text = repr(float(value))
  mantissa, _, exponent = text.partition('e')
  # Python writes 1e+16 where Go still writes digits, up to 21 of them.
  if 1e16 <= abs(value) < 1e21:
    return f'{value:.0f}'
  mantissa = mantissa.removesuffix('.0')
  if not exponent:
    return mantissa
  sign, digits = exponent[0], exponent[1:]
  return f'{mantissa}e{sign}{digits.zfill(2)}'


def parse_duration(text: str) -> float:
  """Seconds of a duration such as "60s", "1m30s", "1.5h".

  Raises:
    InvalidArgument: it is not one; a plain number other than 0 has no unit.
  """
  if text == '0':
    return 0.0
  negative = text.startswith('-')
  body = text.lstrip('+-') if len(text) - len(text.lstrip('+-')) <= 1 else ''
  terms = _TERM.findall(body)
  if not terms or ''.join(number + unit for number, unit in terms) != body:
    raise errors.InvalidArgument(
      f'"{text}" is not a duration: write a number with a unit, for example '
      '500ms, 60s or 1m30s'
    )
  seconds = sum(float(number) * _UNITS[unit] for number, unit in terms)
  return -seconds if negative else seconds
