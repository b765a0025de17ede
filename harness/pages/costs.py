"""Computes the cost of a run from the hourly price of its system."""

import dataclasses

from harness.results import entry as entry_lib

_HOUR = 3600.0


@dataclasses.dataclass(frozen=True)
class Cost:
  """Costs at the speed of a performance run, in the currency of the price.

  Attributes:
    run: The cost of the performance run.
    per_1000_samples: The cost of 1,000 answers.
    per_million_tokens: The cost of a million generated tokens, or None if no
      tokens were generated.
  """

  run: float
  per_1000_samples: float
  per_million_tokens: float | None


def cost(
  performance: entry_lib.Performance, price_per_hour: float
) -> Cost | None:
  """Returns the cost of a run, or None if it has no answers or no duration."""
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
  """Returns the prices per hour, by name, of texts PRICE or NAME:PRICE.

  A price without a name has the key ''. It applies to systems that have no
  price of their own.

  Raises:
    ValueError: A text is malformed, or a name has two prices.
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
        f'price_per_hour {text!r} is not a price. Pass 4.20 for all results,'
        ' or NAME:4.20 for the result with the ID, system or platform NAME.'
      )
    if name in prices:
      raise ValueError(
        f'price_per_hour has two prices for {name or "all results"!r}. Pass'
        ' only one.'
      )
    prices[name] = price
  return prices


def price_of(prices: dict[str, float], *names: str) -> float | None:
  """Returns the price of the first name that has one, or the default price."""
  return next((prices[name] for name in (*names, '') if name in prices), None)


def price(entry: entry_lib.Entry, prices: dict[str, float]) -> float | None:
  """Returns the price of a result's system, from the user's prices."""
  name = system_name(entry)
  return price_of(prices, entry.id, *([name] if name else []))


def system_name(entry: entry_lib.Entry) -> str:
  """Returns the name of the system, or of its processors if it has no name."""
  names = (
    str(entry.description.get(key) or '').strip()
    for key in (
      'system_name',
      'accelerator_model_name',
      'host_processor_model_name',
    )
  )
  return next((name for name in names if name not in ('', 'N/A', '-')), '')
