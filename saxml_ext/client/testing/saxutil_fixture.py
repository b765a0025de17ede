"""Runs saxutil commands in a test, against a cell on loopback."""

import contextlib
import io

from absl.testing import parameterized

from saxml_ext.client import saxutil
from saxml_ext.client.testing import fake_cell
from saxml_ext.common.testing import golden

# Maps each label to a recorded command line and its output.
RECORDED = {row['label']: row for row in golden.load('saxutil_tables.json')}


class SaxutilTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.cell = fake_cell.FakeCell(self.create_tempdir().full_path)
    self.addCleanup(self.cell.stop)

  def run_saxutil(self, *args: str) -> tuple[int, str]:
    """Runs a command; returns the exit code and the output."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
      code = saxutil.run([f'--sax_root={self.cell.root}', *args])
    self.stderr = err.getvalue()
    return code, out.getvalue()

  def check(self, code: int, *args: str) -> str:
    got, out = self.run_saxutil(*args)
    self.assertEqual(got, code, self.stderr)
    return out
