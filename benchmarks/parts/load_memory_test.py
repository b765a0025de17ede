import contextlib
import io
import tempfile

from absl.testing import absltest
from absl.testing import flagsaver

from benchmarks.parts import load_memory
from saxml_ext.server.testing import small_model


class LoadMemoryTest(absltest.TestCase):
  def _main(self, **values) -> str:
    printed = io.StringIO()
    with flagsaver.flagsaver(**values), contextlib.redirect_stdout(printed):
      load_memory.main(['load_memory'])
    return printed.getvalue()

  def test_prints_weights_and_peak(self):
    path = small_model.write(tempfile.mkdtemp(dir=absltest.TEST_TMPDIR.value))
    name = f'{small_model.Small.__module__}.{small_model.Small.__name__}'
    self.assertRegex(
      self._main(params=name, checkpoint=path),
      r'Small: weights \d+ MB, peak \d+ MB \([\d.]+ times\) in \d+ s',
    )

  def test_mistakes_are_reported(self):
    with self.assertRaisesRegex(SystemExit, 'load_memory: .*NoSuchParams'):
      self._main(params='gptj.NoSuchParams', checkpoint='/nowhere')


if __name__ == '__main__':
  absltest.main()
