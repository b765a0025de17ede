"""The name of a result's system, its price per hour, and what a run costs."""

import dataclasses

from harness.results import entry as entry_lib

_HOUR = 3600.0


@dataclasses.dataclass(frozen=True)
class Cost:
  """Costs at the speed of a performance run, in the currency of the price.

  Attributes:
    run: The cost of the performance run.
    per_1000_samples: The cost of a thousand answers.
    per_million_tokens: The cost of a million generated tokens; None without
      tokens.
  """

  run: float
  per_1000_samples: float
  per_million_tokens: float | None


def cost(
  performance: entry_lib.Performance, price_per_hour: float
) -> Cost | None:
  """Returns the cost of a run; None if it answered nothing or took no time."""
  if performance.samples <= 0 or performance.seconds <= 0:
    return None
  run = price_per_hour * performance.seconds / _HOUR
  tokens = performance.tokens_per_second
  return Cost(
    run=run,
    per_1000_samples=1000 * run / performance.samples,
    per_million_tokens=price_per_hour / _HOUR / tokens * 1e6
    if tokens
    else None,
  )


def parse_prices(texts: list[str]) -> dict[str, float]:
  """Returns prices per hour by name, from texts PRICE or NAME:PRICE.

  The price that holds if no name fits has the name ''.

  Raises:
    ValueError: A text is neither, or gives a second price of one name.
  """
  prices: dict[str, float] = {}
  for text in texts:
    name, _, figure = text.rpartition(':')
    try:
      price = float(figure)
    except ValueError:
      price = -1.0
    if not 0 <= price < float('inf'):
      raise ValueError(
        f'price_per_hour {text!r} is no price; write 4.20 for all results, or'
        ' NAME:4.20 for one, whose id, system or platform is NAME'
      )
    if name in prices:
      raise ValueError(
        f'price_per_hour says two prices of {name or "all results"!r}; give one'
      )
    prices[name] = price
  return prices


def price_of(prices: dict[str, float], *names: str) -> float | None:
  """Returns the price of what has these names: its own, else the general one."""
  return next((prices[name] for name in (*names, '') if name in prices), None)


def price(entry: entry_lib.Entry, prices: dict[str, float]) -> float | None:
  """Returns the price of a result's system among those that a user named."""
  name = system_name(entry)
  return price_of(prices, entry.id, *([name] if name else []))


def system_name(entry: entry_lib.Entry) -> str:
  """Returns the system's name, or its processors if nobody has named it."""
  names = (
    str(entry.description.get(key) or '').strip()
    for key in (
      'system_name',
      'accelerator_model_name',
      'host_processor_model_name',
    )
  )
  return next((name for name in names if name not in ('', 'N/A', '-')), '')
