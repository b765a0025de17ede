from absl.testing import absltest

from harness.loadgen import target
from harness.systems import launch
from harness.systems import network_launchers
from saxml_ext.client.testing import fake_cell
from serve import children
from serve import programs
from serve import progress


class LaunchersTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    directory = self.create_tempdir().full_path
    group = self.enterContext(children.Children())
    self.place = launch.Workplace(
      group, directory, directory, progress.Progress()
    )

  def test_nodes(self):
    launcher = network_launchers.NetworkSut(('h:1', 'h:2'), connections=3)
    started = launcher.start(self.place)
    self.assertEqual(launcher.kind, 'network')
    self.assertEqual(started.program, 'harness/network/lon_run')
    self.assertEqual(
      started.flags,
      {'sut_server': 'h:1,h:2', 'connections': 3},
    )
    self.assertEqual(launcher.parameters, started.flags)
    self.assertFalse(started.exact)

  def test_a_cell(self):
    cell = fake_cell.FakeCell(self.create_tempdir().full_path)
    self.addCleanup(cell.stop)
    running = launch.RunningCell(target.Target(fake_cell.MODEL, cell.root))
    launcher = network_launchers.CellOverNetwork(running)
    started = launcher.start(self.place)
    self.assertEqual(launcher.kind, 'network')
    self.assertEqual(started.program, programs.LOADGEN_RUN)
    self.assertEqual(
      started.flags,
      {
        'model_path': fake_cell.MODEL,
        'sax_root': cell.root,
        'stream': False,
        'network': 'lon',
      },
    )
    self.assertEqual(launcher.parameters['network'], 'lon')
    self.assertEqual(launcher.inputs, {})


if __name__ == '__main__':
  absltest.main()
