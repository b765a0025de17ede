"""Defines the options of a client and its requests, and short model names.

If the environment variable SAX_CELL names a cell, users can give a model by its
short name: "m" stands for "/sax/<cell>/m".
"""

from collections.abc import Sequence
import dataclasses
import os

from saxml_ext.common import cell as cell_files
from saxml_ext.common import errors
from saxml_ext.protobuf import common_pb2

# The timeout value that means no limit.
NO_TIMEOUT = -1.0


@dataclasses.dataclass
class Options:
  """The options for connections from a `Model` to its replicas.

  Attributes:
    num_conn: The maximum number of replicas of a model that this process uses.
    proxy_addr: The "host:port" that receives every request, without asking the
      admin server. If empty, requests go to the model's replicas.
    fail_fast: True to fail at once if the replica is full or cannot be reached,
      instead of a retry.
    wait_if_full: True to retry a request if its replica is full. Otherwise, the
      caller gets ResourceExhausted at once, with the retry delay that the
      replica asked for.
  """

  num_conn: int = 37
  proxy_addr: str = ''
  fail_fast: bool = False
  wait_if_full: bool = True


@dataclasses.dataclass
class AdminOptions:
  """The options of a call to the admin server.

  Attributes:
    timeout: The timeout in seconds; negative for no limit.
  """

  timeout: float = NO_TIMEOUT


class ModelOptions:
  """The extra inputs and the deadline of a request."""

  def __init__(self, timeout: float = NO_TIMEOUT):
    """Sets the timeout, in seconds; negative for no limit."""
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
    """Sets an extra input to a number, for example the temperature."""
    self._extra_inputs.items[key] = value

  def SetExtraInputTensor(self, key: str, value: Sequence[float]) -> None:
    """Sets an extra input to a flat list of numbers."""
    self._extra_inputs.tensors[key].values[:] = value

  def SetExtraInputString(self, key: str, value: str) -> None:
    """Sets an extra input to a text."""
    self._extra_inputs.strings[key] = value

  def GetExtraInput(self, key: str) -> float:
    """Returns an extra input that was set to a number.

    Raises:
      NotFound: The extra input is not set.
    """
    if key not in self._extra_inputs.items:
      raise errors.NotFound(
        f'extra input "{key}" is not set. Available:'
        f' {", ".join(sorted(self._extra_inputs.items)) or "none"}'
      )
    return self._extra_inputs.items[key]

  def SetTimeout(self, timeout: float) -> None:
    """Sets the timeout of a request in seconds; negative for no limit."""
    self._timeout = timeout

  def GetTimeout(self) -> float:
    """Returns the timeout of a request in seconds; negative for no limit."""
    return self._timeout

  @property
  def seconds(self) -> float | None:
    """The timeout for gRPC: seconds, or None for no limit."""
    return seconds(self._timeout)

  def ToProto(self) -> common_pb2.ExtraInputs:
    """Returns a copy of the extra inputs as a message."""
    copy = common_pb2.ExtraInputs()
    copy.CopyFrom(self._extra_inputs)
    return copy

  def ToDebugString(self) -> str:
    """Returns the extra inputs and the timeout as readable text."""
    return f'timeout: {self._timeout:g} s\n{self._extra_inputs}'


def seconds(timeout: float) -> float | None:
  """Returns the timeout for gRPC: seconds, or None for no limit."""
  return None if timeout < 0 else timeout


def timeout_of(options: ModelOptions | None) -> float | None:
  """Returns the timeout for gRPC; None for no limit or without options."""
  return None if options is None else options.seconds


def default_cell() -> str:
  """Returns the cell "/sax/<cell>" in SAX_CELL, or "" if it is not set."""
  return os.environ.get(cell_files.CELL_VARIABLE, '').rstrip('/')


def model_id(name: str) -> str:
  """Returns the full id of a model.

  Args:
    name: An id "/sax/...", which stays unchanged, or a model's name without
      slashes.

  Returns:
    The id, which is not validated. If SAX_CELL is not set, a short name stays
    unchanged.
  """
  cell = default_cell()
  return f'{cell}/{name}' if cell and name and '/' not in name else name
