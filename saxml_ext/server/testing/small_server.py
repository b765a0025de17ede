"""Runs the model server with the params of `small_model` registered."""

from saxml_ext.common import program
from saxml_ext.server import server
from saxml_ext.server.testing import small_model  # noqa: F401 Registers.

if __name__ == '__main__':
  program.run(server.main)
