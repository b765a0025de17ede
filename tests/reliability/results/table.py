"""Lists the attacks and failures that a cell must survive."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Row:
  """A row of the table.

  Attributes:
    key: The key of the row, also on the command line.
    title: The name of the attack or failure.
    minutes: The approximate duration of the full form.
    mounts: True if the test mounts file systems; see `namespaces.enter`.
  """

  key: str
  title: str
  minutes: float
  mounts: bool = False


ROWS = (
  Row(
    '1',
    'kill -9 of the admin server at random points of publish, update,'
    ' unpublish',
    6,
  ),
  Row(
    '2',
    'leader with two standbys, killed or stopped, while a model is asked',
    8,
  ),
  Row(
    '3',
    'three replicas at 70 % load, kill -9 of one; one stopped',
    5,
  ),
  Row(
    '4',
    'state files flipped, cut, emptied, zeroed, of another format',
    1,
  ),
  Row(
    '5',
    'random and mutated messages at every RPC of both servers',
    9,
  ),
  Row(
    '6',
    'hostile ids and paths',
    0.5,
  ),
  Row(
    '7',
    'hostile checkpoints',
    0.5,
  ),
  Row(
    '8',
    'streams hardly read, connections half made, calls given up',
    5,
  ),
  Row(
    '9',
    'requests beyond every limit, and requests that come too late',
    0.5,
  ),
  Row(
    '10',
    'five times the capacity for a minute',
    2,
  ),
  Row(
    '11',
    'wall clocks off by an hour and jumping',
    2.5,
  ),
  Row(
    '12',
    'storage full, read-only, failing; conversions interrupted',
    3,
    mounts=True,
  ),
  Row(
    'starved',
    'the only admin server short of CPU time; publishes with huge overrides',
    1,
  ),
  Row(
    'drain',
    'servers told to end, reloaded, taken away under traffic',
    2,
  ),
  Row(
    'loadgen',
    'a LoadGen run whose engine fails, or whose model server is killed',
    1,
  ),
  Row(
    'soak',
    'an hour of mixed traffic with publish, unpublish, reload and kills',
    65,
  ),
)


def find(key: str) -> Row:
  """Returns the row with a key.

  Raises:
    ValueError: There is no such row.
  """
  for row in ROWS:
    if row.key == key:
      return row
  raise ValueError(
    f'there is no row {key!r}. Available: {", ".join(r.key for r in ROWS)}.'
  )
