"""The options of a client and of its requests, and short names of models.

Where the environment variable SAX_CELL names a cell, people may give a model by
its short name: "m" stands for "/sax/<cell>/m".
"""

from collections.abc import Sequence
import dataclasses
import os

from saxml_ext.common import cell as cell_files
from saxml_ext.common import errors
from saxml_ext.protobuf import common_pb2

# A timeout that stands for "wait as long as it takes".
NO_TIMEOUT = -1.0


@dataclasses.dataclass
class Options:
  """The way in which a `Model` reaches its replicas.

  Attributes:
    num_conn: at most so many replicas of a model are used by this process.
    proxy_addr: "host:port" to send every request to, without asking the
      admin server; empty for the model's replicas.
    fail_fast: a request is not sent again when its replica is full or cannot
      be reached.
    wait_if_full: a request is sent again when its replica is full. Without it,
      the caller gets ResourceExhausted at once, with the replica's wish of when
      to try again.
  """

  num_conn: int = 37
  proxy_addr: str = ''
  fail_fast: bool = False
  wait_if_full: bool = True


@dataclasses.dataclass
class AdminOptions:
  """The time that a call to the admin server may take.

  Attributes:
    timeout: seconds; negative for no limit.
  """

  timeout: float = NO_TIMEOUT


class ModelOptions:
  """The extra inputs and the deadline of a request."""

  def __init__(self, timeout: float = NO_TIMEOUT):
    """Sets no extra input; `timeout` in seconds, negative for no limit."""
    self._extra_inputs = common_pb2.ExtraInputs()
    self._timeout = timeout

  def __copy__(self) -> 'ModelOptions':
    """Returns an independent copy."""
    copy = ModelOptions(self._timeout)
    copy._extra_inputs.CopyFrom(self._extra_inputs)
    return copy

  def __deepcopy__(self, memo: dict) -> 'ModelOptions':
    return self.__copy__()

  def SetExtraInput(self, key: str, value: float) -> None:
    """Sets a number, for example the temperature."""
    self._extra_inputs.items[key] = value

  def SetExtraInputTensor(self, key: str, value: Sequence[float]) -> None:
    """Sets a flat list of numbers."""
    self._extra_inputs.tensors[key].values[:] = value

  def SetExtraInputString(self, key: str, value: str) -> None:
    """Sets a text."""
    self._extra_inputs.strings[key] = value

  def GetExtraInput(self, key: str) -> float:
    """Returns a number that was set before.

    Raises:
      NotFound: it was not set.
    """
    if key not in self._extra_inputs.items:
      raise errors.NotFound(
        f'extra input "{key}" is not set; set are: '
        f'{", ".join(sorted(self._extra_inputs.items)) or "none"}'
      )
    return self._extra_inputs.items[key]

  def SetTimeout(self, timeout: float) -> None:
    """Sets the deadline of a request in seconds; negative for none."""
    self._timeout = timeout

  def GetTimeout(self) -> float:
    """Returns the deadline of a request in seconds; negative for none."""
    return self._timeout

  @property
  def seconds(self) -> float | None:
    """The deadline as gRPC takes it: None for none."""
    return seconds(self._timeout)

  def ToProto(self) -> common_pb2.ExtraInputs:
    """Returns the extra inputs as they are sent; a copy."""
    copy = common_pb2.ExtraInputs()
    copy.CopyFrom(self._extra_inputs)
    return copy

  def ToDebugString(self) -> str:
    """Returns the extra inputs and the deadline, to be read by people."""
    return f'timeout: {self._timeout:g} s\n{self._extra_inputs}'


def seconds(timeout: float) -> float | None:
  """Returns an option's timeout as gRPC takes it: None for no limit."""
  return None if timeout < 0 else timeout


def timeout_of(options: ModelOptions | None) -> float | None:
  """Returns the deadline as gRPC takes it; without options there is none."""
  return None if options is None else options.seconds


def default_cell() -> str:
  """Returns the cell "/sax/<cell>" that SAX_CELL names; "" if it is not set."""
  return os.environ.get(cell_files.CELL_VARIABLE, '').rstrip('/')


def model_id(name: str) -> str:
  """Returns the full id that a name stands for.

  Args:
    name: An id "/sax/...", which stays as it is, or a model's name without
      slashes.

  Returns:
    The id. It is not checked here, and a short name stays as it is if no cell
    is named.
  """
  cell = default_cell()
  return f'{cell}/{name}' if cell and name and '/' not in name else name
