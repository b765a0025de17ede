"""Runs a cell that serves one model, with engines of `typing_runner`."""

from collections.abc import Iterator, Mapping, Sequence
import contextlib
import dataclasses

from saxml_ext.protobuf import admin_pb2
from tests.chaos import processes

SERVER = 'tests.reliability.typing_server'
PARAMS = 'saxml_ext.params.gptj.TinyTokenizedFP32'
MODEL = processes.CELL + '/served'
# These engines read no checkpoint. However, a reload checks that a second
# checkpoint fits into memory. With these lengths, a `small_model` fits.
LENGTHS = {
  'INPUT_SEQ_LEN': '16',
  'BUCKET_KEYS': '[16]',
  'MAX_DECODE_STEPS': '8',
  'MIN_DECODE_STEPS': '1',
}


@dataclasses.dataclass
class Served:
  """The parts of a running cell.

  Attributes:
    cell: The files and programs of the cell.
    admin: The admin server.
    servers: The model servers, each with a replica.
  """

  cell: processes.Cell
  admin: processes.Process
  servers: list[processes.Process]

  @property
  def client_flags(self) -> list[str]:
    """The flags with which `asker` and other clients find the cell."""
    return [f'--sax_root={self.cell.root}', f'--model={MODEL}']


@contextlib.contextmanager
def start(
  directory: str,
  server_flags: Sequence[str] = (),
  overrides: Mapping[str, str] | None = None,
  replicas: int = 1,
) -> Iterator[Served]:
  """Runs a cell that serves a model, until the context ends.

  Args:
    directory: An empty directory.
    server_flags: The flags of the model servers.
    overrides: The overrides of the model's serving params.
    replicas: The number of model servers that serve it.
  """
  with processes.Cell(directory) as cell:
    admin = cell.admin()
    servers = [cell.start(SERVER, server_flags) for _ in range(replicas)]
    cell.wait_for_leader()
    model = admin_pb2.Model(
      model_id=MODEL,
      model_path=PARAMS,
      checkpoint_path=directory,
      requested_num_replicas=replicas,
      overrides=overrides or {},
    )
    cell.call('Publish', admin_pb2.PublishRequest(model=model))
    wait_for_replicas(cell, replicas)
    yield Served(cell, admin, servers)


def wait_for_replicas(cell: processes.Cell, count: int) -> None:
  """Waits until this many replicas are loaded."""
  ready = admin_pb2.WaitForReadyRequest(model_id=MODEL, num_replicas=count)
  cell.call('WaitForReady', ready)
