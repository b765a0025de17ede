"""Times of every sample of a run, for reports: LoadGen logs none of them."""

from collections.abc import Iterable
import csv
import dataclasses
import os

FILE = 'timeline.csv'


@dataclasses.dataclass(frozen=True, slots=True)
class Times:
  """One sample; times in seconds since the first sample was issued.

  Attributes:
    index: of the sample in the set.
    issued: when LoadGen asked for it.
    sent: when the system got it.
    first_token: when its first token was there; None where nobody knows.
    done: when its answer was there.
    tokens: how many were generated; 0 where none are.
  """

  index: int
  issued: float
  sent: float
  first_token: float | None
  done: float
  tokens: int


class Timeline:
  """Collects times; any thread may add."""

  def __init__(self) -> None:
    # Not yet objects: making one takes longer than all else of `add`.
    self._rows: list[tuple[int, float, float, float | None, float, int]] = []

  @property
  def samples(self) -> list[Times]:
    """What was added, in that order."""
    return [Times(*row) for row in self._rows]

  def add(
    self,
    index: int,
    issued: float,
    sent: float,
    first_token: float | None,
    done: float,
    tokens: int,
  ) -> None:
    """Adds a sample; arguments are the attributes of `Times`."""
    self._rows.append((index, issued, sent, first_token, done, tokens))

  def write(self, path: str) -> None:
    """Writes a CSV file with a heading, in order of the answers.

    Raises:
      OSError: it cannot be written.
    """
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'w', encoding='utf-8', newline='') as file:
      writer = csv.writer(file)
      writer.writerow(field.name for field in dataclasses.fields(Times))
      writer.writerows(map(_cell, row) for row in self._rows)


def read(path: str) -> list[Times]:
  """Reads what `Timeline.write` wrote.

  Raises:
    OSError: the file cannot be read.
    ValueError: it is no such file.
  """
  with open(path, encoding='utf-8', newline='') as file:
    try:
      return list(_parse(csv.DictReader(file)))
    except (KeyError, TypeError, ValueError) as error:
      raise ValueError(
        f'{path} is no timeline of a run ({error!r}); give the {FILE} that a'
        ' run of the harness wrote'
      ) from error


def _parse(rows: Iterable[dict[str, str]]) -> Iterable[Times]:
  for row in rows:
    first = row['first_token']
    yield Times(
      index=int(row['index']),
      issued=float(row['issued']),
      sent=float(row['sent']),
      first_token=float(first) if first else None,
      done=float(row['done']),
      tokens=int(row['tokens']),
    )


def _cell(value: float | int | None) -> str:
  if value is None:
    return ''
  return f'{value:.6f}' if isinstance(value, float) else str(value)
