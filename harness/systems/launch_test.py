import io

from absl.testing import absltest
from absl.testing import parameterized
import msgspec

from harness.benchmarks import bert
from harness.systems import bert_systems
from harness.systems import launch
from saxml_ext.client.testing import fake_cell
from serve import children
from serve import programs
from serve import progress


class BertTest(parameterized.TestCase):
  def _start(
    self, kind=bert_systems.OnnxRuntimeBert, **values
  ) -> launch.Started:
    workspace = launch.Workspace(
      children.Children(), '/work', '/logs', progress.Progress(io.StringIO())
    )
    return kind(**values).start(workspace)

  def test_bundled_model_by_itself(self):
    for kind, program, package in (
      (
        bert_systems.OnnxRuntimeBert,
        'harness/bert/loadgen_onnxruntime',
        'onnxruntime',
      ),
      (bert_systems.TorchBert, 'harness/bert/loadgen_pytorch', 'torch'),
    ):
      started = self._start(kind)
      self.assertEqual(started.program, program)
      self.assertEqual(started.system.model, bert.BUNDLE.model)
      self.assertTrue(started.exact)
      self.assertEqual(kind.framework, package)

  @parameterized.parameters(
    (None, None, True),
    ('/bert', 'float32', True),
    ('/bert', 'int8', False),
    ('/bert.onnx', None, False),  # Its number format is unknown.
  )
  def test_only_float32_must_equal_the_reference(self, model, precision, exact):
    started = self._start(checkpoint=model, precision=precision)
    self.assertEqual(started.exact, exact)

  def test_parameters_decide_a_result(self):
    made = bert_systems.TorchBert('/bert', 'cuda', 'bfloat16', 4, 2)
    self.assertEqual(made.kind, 'pytorch')
    self.assertEqual(
      made.parameters,
      {
        'device': 'cuda',
        'precision': 'bfloat16',
        'batch_size': 4,
        'threads': 2,
      },
    )
    self.assertEqual(made.inputs, {'checkpoint': '/bert'})


class LaunchersTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    directory = self.create_tempdir().full_path
    group = self.enterContext(children.Children())
    self.workspace = launch.Workspace(
      group, directory, directory, progress.Progress()
    )

  def test_no_cell_starts_for_another_kind_of_checkpoint(self):
    path = self.create_tempdir().full_path
    for system in launch.OwnCell, launch.Engine:
      with self.assertRaisesRegex(ValueError, f'{path} is not a PAX .*--base='):
        system(checkpoint=f'{path}/', benchmark='gptj').start(self.workspace)

  def test_nodes(self):
    nodes = launch.NetworkSut(('h:1', 'h:2'), connections=3)
    started = nodes.start(self.workspace)
    self.assertEqual(nodes.kind, 'network')
    self.assertEqual(started.program, 'harness/network/lon_run')
    self.assertEqual(
      msgspec.to_builtins(started.system),
      {'type': 'network', 'sut_server': ('h:1', 'h:2'), 'connections': 3},
    )
    self.assertEqual(
      nodes.parameters, {'sut_server': 'h:1,h:2', 'connections': 3}
    )
    self.assertFalse(started.exact)

  def test_a_cell(self):
    cell = fake_cell.FakeCell(self.create_tempdir().full_path)
    self.addCleanup(cell.stop)
    running = launch.RunningCell(
      fake_cell.MODEL, cell.root, network='lon', benchmark='gptj'
    )
    started = running.start(self.workspace)
    self.assertEqual(running.kind, 'network')
    self.assertEqual(started.program, programs.LOADGEN_RUN)
    self.assertEqual(
      msgspec.to_builtins(started.system),
      {
        'type': 'runningcell',
        'model_path': fake_cell.MODEL,
        'sax_root': cell.root,
        'stream': False,
        'network': 'lon',
        'benchmark': 'gptj',
      },
    )
    self.assertEqual(running.parameters['network'], 'lon')
    self.assertEqual(running.inputs, {})
    with self.assertRaisesRegex(
      ValueError, '--network=sut is not for cells. Use --network=lon'
    ):
      launch.RunningCell(fake_cell.MODEL, cell.root, network='sut')


if __name__ == '__main__':
  absltest.main()
