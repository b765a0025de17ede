"""Checks the least speed of our integers relative to other engines."""

from collections.abc import Iterator, Mapping, Sequence

from benchmarks import contenders

# The least ratio by the family, the name of our contender and of the other one,
# and the number of requests.
_LEAST: Mapping[str, Mapping[tuple[str, str, int], float]] = {
  contenders.LLAMA: {
    ('ours_int8', 'ct2_int8', 8): 1.3,
    ('ours_int8', 'ct2_int8', 32): 1.3,
    ('ours_int8', 'llama_cpp_q8_0', 1): 0.95,
    ('ours_int8', 'llama_cpp_q8_0', 8): 1.5,
    ('ours_int8', 'llama_cpp_q8_0', 32): 1.5,
    ('ours_int4', 'llama_cpp_q4_0', 1): 1.15,
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
    ours = row.get('ours', '')
    target = least.get((ours, name, row['requests']))
    if target is None:
      continue
    ratio = row['ours_over_this']
    met = ratio >= target
    yield (
      met,
      f'target {"met" if met else "MISSED"}: with {row["requests"]} requests,'
      f' {ours} is {ratio:.2f} times as fast as {name}; the target is'
      f' {target}.',
    )
