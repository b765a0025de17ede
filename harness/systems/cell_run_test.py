from absl.testing import absltest

from harness.loadgen import target
from harness.systems import cell_run
from saxml_ext.client.testing import fake_cell
from saxml_ext.common import errors
from saxml_ext.protobuf import common_pb2


class CellNameTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.cell = fake_cell.FakeCell(self.create_tempdir().full_path)
    self.addCleanup(self.cell.stop)
    self.target = target.Target(fake_cell.MODEL, self.cell.root)

  def test_the_model_and_its_servers_are_named(self):
    addresses = sorted(self.cell.add_server().address for _ in range(2))
    model = f'{fake_cell.MODEL} (p.A from None)'
    self.assertEqual(
      cell_run.network_name(self.target),
      f'Network SUT: {model} on {addresses[0]}, {model} on {addresses[1]}',
    )

  def test_a_server_that_has_not_loaded_the_model(self):
    server = self.cell.add_server()
    server.status = common_pb2.ModelStatus.LOADING
    with self.assertRaisesRegex(ValueError, f'{server.address} has not loaded'):
      cell_run.network_name(self.target)

  def test_a_server_that_is_gone(self):
    server = self.cell.add_server()
    server.stop()
    with self.assertRaisesRegex(
      ConnectionError, f'{server.address} does not answer .*UNAVAILABLE'
    ):
      cell_run.network_name(self.target)

  def test_no_server(self):
    with self.assertRaisesRegex(ValueError, 'no model server yet'):
      cell_run.network_name(self.target)

  def test_no_model(self):
    with self.assertRaises(errors.NotFound):
      cell_run.network_name(target.Target('/sax/test/other', self.cell.root))


if __name__ == '__main__':
  absltest.main()
