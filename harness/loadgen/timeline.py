"""Records times of every sample of a run for reports. LoadGen logs no times."""

from collections.abc import Iterable
import csv
import dataclasses
import os

FILE = 'timeline.csv'


@dataclasses.dataclass(frozen=True, slots=True)
class Times:
  """The times of one sample, in seconds since the first sample was issued.

  Attributes:
    index: The index of the sample in the set.
    issued: The time when LoadGen issued it.
    sent: The time when the system received it.
    first_token: The time of its first token; None if it is unknown.
    done: The time of its answer.
    tokens: The number of generated tokens; 0 if the model generates none.
  """

  index: int
  issued: float
  sent: float
  first_token: float | None
  done: float
  tokens: int


class Timeline:
  """Collects times. Any thread may add a sample."""

  def __init__(self) -> None:
    # The rows are plain tuples, because creating an object takes longer than
    # the rest of `add`.
    self._rows: list[tuple[int, float, float, float | None, float, int]] = []

  @property
  def samples(self) -> list[Times]:
    """The samples in the order in which they were added."""
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
    """Adds a sample. The arguments are the attributes of `Times`."""
    self._rows.append((index, issued, sent, first_token, done, tokens))

  def write(self, path: str) -> None:
    """Writes a CSV file with a header, in the order of the answers.

    Raises:
      OSError: The file cannot be written.
    """
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'w', encoding='utf-8', newline='') as file:
      writer = csv.writer(file)
      writer.writerow(field.name for field in dataclasses.fields(Times))
      writer.writerows(map(_cell, row) for row in self._rows)


def read(path: str) -> list[Times]:
  """Reads a file that `Timeline.write` wrote.

  Raises:
    OSError: The file cannot be read.
    ValueError: The file is not a timeline.
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
