import io

from absl.testing import absltest
from absl.testing import parameterized

from harness.bert import bert_bundle
from harness.bert import launcher
from harness.systems import launch
from serve import children
from serve import progress


class LauncherTest(parameterized.TestCase):
  def _start(self, **values) -> launch.Started:
    place = launch.Workplace(
      children.Children(), '/work', '/logs', progress.Progress(io.StringIO())
    )
    return launcher.Bert(**values).start(place)

  def test_bundled_model_by_itself(self):
    for kind, program, package in (
      ('onnxruntime', 'harness/bert/loadgen_onnxruntime', 'onnxruntime'),
      ('pytorch', 'harness/bert/loadgen_pytorch', 'torch'),
    ):
      started = self._start(kind=kind)
      self.assertEqual(started.program, program)
      self.assertEqual(started.flags['model'], bert_bundle.model_dir())
      self.assertTrue(started.exact)
      self.assertEqual(launcher.Bert(kind).framework, package)

  @parameterized.parameters(
    (None, None, True),
    ('/bert', 'float32', True),
    ('/bert', 'int8', False),
    ('/bert.onnx', None, False),  # Nobody knows what is in there.
  )
  def test_only_float32_must_equal_the_reference(self, model, precision, exact):
    started = self._start(kind='onnxruntime', model=model, precision=precision)
    self.assertEqual(started.exact, exact)

  def test_what_decides_a_result(self):
    made = launcher.Bert('pytorch', '/bert', 'cuda', 'bfloat16', 4, 2)
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


if __name__ == '__main__':
  absltest.main()
