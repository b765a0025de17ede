"""Checks the least speed of our int8 relative to other engines."""

from collections.abc import Iterator, Mapping, Sequence

from benchmarks import contenders

# The least ratio by the family, the name of the other contender, and the number
# of requests.
_LEAST: Mapping[str, Mapping[tuple[str, int], float]] = {
  contenders.LLAMA: {
    ('ct2_int8', 8): 1.3,
    ('ct2_int8', 32): 1.3,
    ('llama_cpp_q8_0', 1): 0.95,
    ('llama_cpp_q8_0', 8): 1.5,
    ('llama_cpp_q8_0', 32): 1.5,
  }
}


def check(family: str, rows: Sequence[dict]) -> Iterator[tuple[bool, str]]:
  """Yields whether each target of a family is met, and a sentence on it.

  Targets whose contenders were not measured are left out.

  Args:
    family: The family of the model.
    rows: The rows of the run, see rows.py.
  """
  least = _LEAST.get(family, {})
  for row in rows:
    name = f'{row["engine"]}_{row["dtype"]}'
    target = least.get((name, row['requests']))
    if target is None or row.get('ours') != 'ours_int8':
      continue
    ratio = row['ours_over_this']
    met = ratio >= target
    yield (
      met,
      f'target {"met" if met else "MISSED"}: with {row["requests"]} requests,'
      f' ours_int8 is {ratio:.2f} times as fast as {name}; the target is'
      f' {target}.',
    )
