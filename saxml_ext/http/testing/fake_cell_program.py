"""Runs a cell with a test Completion service as a separate process.

The program prints the root of the cell and the address of the service. It ends
when its standard input is closed.
"""

from collections.abc import Sequence
import sys
import tempfile

from saxml_ext.client.testing import fake_cell
from saxml_ext.common import program
from saxml_ext.http.testing import fake_completion


def main(argv: Sequence[str]) -> None:
  """Serves until the standard input is closed."""
  del argv
  with tempfile.TemporaryDirectory() as directory:
    cell = fake_cell.FakeCell(directory)
    server = fake_completion.FakeCompletion()
    cell.admin.add_address(fake_cell.MODEL, server.address)
    print(cell.root, server.address, flush=True)
    sys.stdin.read()
    server.stop()
    cell.stop()


if __name__ == '__main__':
  program.run(main)
