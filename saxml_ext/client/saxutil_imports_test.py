"""Tests that saxutil starts without what a command does not need.

How long a start takes depends on the machine; what is imported does not.
"""

import json
import subprocess
import sys

from absl.testing import absltest

# What absl's flags and logging bring (pdb, xml), a debug page's HTTP server,
# and what only servers and the harness need.
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
# gRPC with asyncio and protobuf are about 220 of them.
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
    """The modules that a program has imported when a command is done."""
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

  def test_command_imports_what_it_needs(self):
    root = self.create_tempdir()
    root.create_file('sax/test/config.proto')
    modules = self.modules(f'--sax_root={root.full_path}', 'ls', '/sax')
    self.assertEmpty(modules.intersection(_UNWANTED))
    self.assertLess(len(modules), _MOST_MODULES)
    self.assertIn('saxml_ext.client.cli.listing', modules)
    others = {'cells', 'model_commands', 'publishing'}
    self.assertEmpty(
      modules & {f'saxml_ext.client.cli.{name}' for name in others}
    )


if __name__ == '__main__':
  absltest.main()
