"""Formats the results of a run on a GPU as text."""

from collections.abc import Iterable, Mapping
from typing import Any

_GIGA = 1e9


def line(result: Mapping[str, Any]) -> str:
  """Returns one line with all values of a result."""
  return ', '.join(
    f'{key} {value:.4g}' if isinstance(value, float) else f'{key} {value}'
    for key, value in result.items()
  )


def text(
  header: Mapping[str, Any], results: Mapping[str, Mapping[str, Any]]
) -> str:
  """Returns a table of each kind of case that has results, for Markdown."""
  parts = [f'Measured on {header["device"]}:' + ' tiny sizes' * header['tiny']]
  answers = [
    (
      name,
      f'{r["equal"]} of {r["answers"]}',
      f'{r["leading_tokens_equal"]:.2%}',
      f'{r["compile_seconds"]:.1f}',
    )
    for name, r in results.items()
    if 'equal' in r
  ]
  parts += _rows(
    ('answers', 'equal', 'tokens before a difference', 'compile s'), answers
  )
  if 'read_bytes_per_s' in (rates := results.get('rates', {})):
    parts += _rows(
      ('rate', 'GB or 10^9 operations per s'),
      [(name, f'{value / _GIGA:,.1f}') for name, value in rates.items()],
    )
  parts += _rows(
    (
      'speed',
      'ms a step',
      'bound',
      'share',
      "transformers' time",
      'tokens/s',
      'prefill tokens/s',
      'samples/s',
    ),
    [
      (
        name,
        f'{r["step_ms"]:.2f}',
        f'{r["bound_ms"]:.2f}',
        f'{r["share_of_bound"]:.0%}',
        _peer(name, r, results),
        f'{r["decode_tokens_per_s"]:,.0f}',
        f'{r["prefill_tokens_per_s"]:,.0f}',
        f'{r["samples_per_s"]:.2f}',
      )
      for name, r in results.items()
      if 'share_of_bound' in r
    ],
  )
  parts += [
    f'{name}: {r.get("note") or r["error"]}'
    for name, r in results.items()
    if 'note' in r or 'error' in r
  ]
  return '\n'.join(parts)


def _peer(
  name: str,
  result: Mapping[str, Any],
  results: Mapping[str, Mapping[str, Any]],
) -> str:
  """Returns the factor by which transformers takes longer; '' without one."""
  _, model, _, batch = name.split('-')
  peer = results.get(f'peer-{batch}')
  if model != 'llama' or peer is None:
    return ''
  return f'{peer["step_ms"] / result["step_ms"]:.2f} x'


def _rows(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
  """Returns the lines of a table; none without rows."""
  lines = [f'| {" | ".join(row)} |' for row in rows]
  if not lines:
    return []
  titles = list(titles)
  return ['', f'| {" | ".join(titles)} |', '|---' * len(titles) + '|', *lines]
