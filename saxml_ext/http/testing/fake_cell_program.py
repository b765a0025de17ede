"""A cell with a Completion service for tests, as a process of its own.

It prints its root and the service's address, and ends with its standard input.
"""

from collections.abc import Sequence
import sys
import tempfile

from saxml_ext.client.testing import fake_cell
from saxml_ext.common import program
from saxml_ext.http.testing import fake_completion


def main(argv: Sequence[str]) -> None:
  """Serves until its standard input ends."""
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
