"""Tests that saxutil imports only the modules that a command needs.

The start time depends on the machine, but the set of imports does not.
"""

import json
import subprocess
import sys

from absl.testing import absltest

# Modules that absl's flags and logging would import (pdb, xml), the HTTP server
# of the debug page, and modules that only servers and the harness need.
_UNWANTED = (
  'absl',
  'http.server',
  'jax',
  'numpy',
  'pdb',
  'rich',
  'tensorstore',
  'xml',
)
# About 220 of them belong to gRPC with asyncio and to protobuf.
_MOST_MODULES = 320

_PROGRAM = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from saxml_ext.client import saxutil
code = saxutil.run(sys.argv[2:])
print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)
"""


class ImportsTest(absltest.TestCase):
  def modules(self, *args: str) -> set[str]:
    """Returns the modules that saxutil has imported when a command ends."""
    done = subprocess.run(
      [sys.executable, '-c', _PROGRAM, json.dumps(sys.path), *args],
      stdout=subprocess.DEVNULL,
      stderr=subprocess.PIPE,
      text=True,
      check=True,
    )
    code, modules = json.loads(done.stderr.splitlines()[-1])
    self.assertEqual(code, 0)
    return set(modules)

  def test_command_imports_only_its_modules(self):
    root = self.create_tempdir()
    root.create_file('sax/test/config.proto')
    modules = self.modules(f'--sax_root={root.full_path}', 'ls', '/sax')
    self.assertEmpty(modules.intersection(_UNWANTED))
    self.assertLess(len(modules), _MOST_MODULES)
    self.assertIn('saxml_ext.client.cli.listing', modules)
    excluded = {'cells', 'model_commands', 'publishing'}
    self.assertEmpty(
      modules & {f'saxml_ext.client.cli.{name}' for name in excluded}
    )


if __name__ == '__main__':
  absltest.main()
