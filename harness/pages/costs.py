"""What a run costs at a price per hour, and the energy it took."""

import dataclasses

from harness.results import entry as entry_lib

_HOUR = 3600.0


@dataclasses.dataclass(frozen=True)
class Cost:
  """At the speed of a performance run, in the currency of the price.

  Attributes:
    run: of the performance run itself.
    per_1000_samples: of a thousand answers.
    per_million_tokens: of a million generated tokens; None without tokens.
  """

  run: float
  per_1000_samples: float
  per_million_tokens: float | None


def cost(
  performance: entry_lib.Performance, price_per_hour: float
) -> Cost | None:
  """The cost of a run; None if it answered nothing or took no time."""
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
  """Prices per hour by name, from texts PRICE or NAME:PRICE.

  Returns:
    The price that holds where no name fits has the name ''.

  Raises:
    ValueError: a text is neither, or says a second price of one name.
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
  """The price of what has these names: its own, else the general one."""
  for name in (*names, ''):
    if name in prices:
      return prices[name]
  return None
