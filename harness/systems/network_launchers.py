"""Systems over the network, as a job sees them.

What started a run is told apart by `kind`: results of kind "network" belong to
MLPerf's Network division, or to the open one.
"""

from collections.abc import Mapping
import dataclasses

from harness.systems import launch

KIND = 'network'
LON_RUN = 'harness/network/lon_run'


@dataclasses.dataclass(frozen=True)
class NetworkSut:
  """Nodes that run already and serve by `harness.network.query_server`.

  Attributes:
    addresses: "host:port" of every node.
    connections: to each node.
    exact: whether they compute in float32, as the reference does.
    program: LoadGen's side; it has the flags of `harness.network.lon`.
  """

  addresses: tuple[str, ...]
  connections: int = 1
  exact: bool = False
  program: str = LON_RUN
  kind = KIND
  framework = ''
  inputs: Mapping[str, str] = dataclasses.field(default_factory=dict)

  @property
  def parameters(self) -> Mapping[str, object]:
    return {
      'sut_server': ','.join(self.addresses),
      'connections': self.connections,
    }

  def start(self, place: launch.Workplace) -> launch.Started:
    place.progress.stage(f'using the systems at {", ".join(self.addresses)}')
    return launch.Started(self.program, self.parameters, self.exact)


@dataclasses.dataclass(frozen=True)
class CellOverNetwork:
  """A model of a cell, its runs logged as those of a Network SUT.

  Attributes:
    cell: the cell.
  """

  cell: launch.Launcher
  kind = KIND

  @property
  def framework(self) -> str:
    return self.cell.framework

  @property
  def parameters(self) -> Mapping[str, object]:
    return {**self.cell.parameters, 'network': 'lon'}

  @property
  def inputs(self) -> Mapping[str, str]:
    return self.cell.inputs

  def start(self, place: launch.Workplace) -> launch.Started:
    started = self.cell.start(place)
    flags = {**started.flags, 'network': 'lon'}
    return dataclasses.replace(started, flags=flags)
