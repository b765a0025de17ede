"""Tests of capacity against the observed behavior of stock Sax."""

from absl.testing import absltest

from saxml_ext.admin.placement import assigner
from saxml_ext.admin.placement import capacity
from saxml_ext.common.testing import golden
from saxml_ext.protobuf import admin_pb2

_LOADED = 2
# Stock Sax counts one core for each of these newer topologies.
_UNLISTED = {
  'CHIP_TOPOLOGY_8X16X16': 2048,
  'CHIP_TOPOLOGY_4X16X32': 2048,
  'CHIP_TOPOLOGY_8X8X16': 1024,
  'CHIP_TOPOLOGY_4X8X16': 512,
}
# Stock Sax counts this model's only replica twice, on one server.
_TWICE = 'already holding a server may be double-loaded?'


def _rows(table: str) -> list[dict]:
  return golden.load('validation.json')[table]


def _server(address: str, row: dict) -> assigner.Server:
  spec = admin_pb2.ModelServer(
    chip_type=row['Chip'], chip_topology=row['Topo'], tags=row['Tags']
  )
  assert set(row['Loaded'].values()) <= {_LOADED}
  return capacity.server(
    spec,
    assigner.Server(
      address,
      frozenset(row['Paths']),
      {model_id: assigner.Rank.LOADED for model_id in row['Loaded']},
    ),
    by_chip=True,
  )


def _model(model_id: str, row: dict) -> assigner.Model:
  published = admin_pb2.Model(
    model_id=model_id,
    model_path=row['Path'],
    requested_num_replicas=row['N'],
    overrides=row['Overrides'],
  )
  return capacity.model(published, may_retry=True, by_chip=True)


class CapacityTest(absltest.TestCase):
  def test_memory_of_chips(self):
    rows = _rows('chip_memory')
    self.assertLen(rows, 11)
    for row in rows:
      with self.subTest(row['chip_type']):
        spec = admin_pb2.ModelServer(chip_type=row['value'])
        self.assertEqual(
          capacity.bytes_per_core(spec), row['gib_per_core'] * 2**30
        )

  def test_cores_of_topologies(self):
    rows = _rows('topology_cores')
    self.assertLen(rows, 26)
    for row in rows:
      name = row['chip_topology']
      with self.subTest(name):
        spec = admin_pb2.ModelServer(chip_topology=row['value'])
        self.assertEqual(
          capacity.cores(spec), _UNLISTED.get(name, row['cores'])
        )

  def test_needs_are_read_from_overrides(self):
    rows = _rows('overrides_mem')
    self.assertLen(rows, 12)
    for row in rows:
      with self.subTest(row['overrides']):
        result = capacity.needs(row['overrides'])
        expected = row['required_bytes_by_cores']
        self.assertEqual({str(k): v for k, v in result.items()}, expected)
        constraints = capacity.constraints(row['overrides'])
        self.assertEqual(constraints and list(constraints), row['constraints'])

  def test_assignments_respect_memory(self):
    rows = _rows('assigner')
    self.assertLen(rows, 11)
    for row in rows:
      scenario = row['scenario']
      with self.subTest(scenario['Name']):
        models = [_model(*item) for item in scenario['Models'].items()]
        plan = assigner.assign(
          capacity.in_order(models, by_chip=True),
          [_server(*item) for item in scenario['Servers'].items()],
        )
        expected = [] if scenario['Name'] == _TWICE else row['to_load']
        self.assertCountEqual(_steps(plan.load), expected)
        self.assertCountEqual(_steps(plan.unload), row['to_unload'])

  def test_need_differs_by_cores(self):
    model = capacity.model(
      admin_pb2.Model(
        model_id='/sax/test/m',
        model_path='p',
        requested_num_replicas=2,
        overrides={'ram': str(2**40), 'ram4': '100'},
      ),
      may_retry=True,
      by_chip=True,
    )
    servers = [
      _server(
        f'{name}:1',
        {
          'Chip': 15,
          'Topo': topology,
          'Paths': ['p'],
          'Tags': [],
          'Loaded': {},
        },
      )
      for name, topology in (('one', 1), ('four', 2), ('eight', 21))
    ]
    plan = assigner.assign([model], servers)
    self.assertEqual(_steps(plan.load), ['four:1 /sax/test/m'])

  def test_memory_is_read_from_tags_by_default(self):
    model = capacity.model(
      admin_pb2.Model(overrides={'ram': '10', 'ram4': '1', 'constraints': 'x'}),
      may_retry=True,
      by_chip=False,
    )
    spec = admin_pb2.ModelServer(chip_type=15, chip_topology=2, memory_bytes=9)
    known = assigner.Server('a:1', frozenset(), {})
    server = capacity.server(spec, known, by_chip=False)
    self.assertEqual((server.memory, model.need_on(server)), (9, 10))
    self.assertEqual(model.constraints, ())


def _steps(steps: tuple[assigner.Step, ...]) -> list[str]:
  return [f'{step.address} {step.model_id}' for step in steps]


if __name__ == '__main__':
  absltest.main()
