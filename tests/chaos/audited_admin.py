"""Runs the admin server's program and records the files that it opens.

It appends their paths, one per line, to the file in AUDIT_FILE.
"""

import os
import sys

from saxml_ext.admin import admin_server
from saxml_ext.common import program

_EVENTS = frozenset(
  {'open', 'os.rename', 'os.link', 'os.remove', 'os.mkdir', 'os.listdir'}
)


def main(argv: list[str]) -> None:
  """Runs the admin server with an audit hook."""
  fd = os.open(os.environ['AUDIT_FILE'], os.O_CREAT | os.O_WRONLY | os.O_APPEND)

  def audit(event: str, args: tuple) -> None:
    if event in _EVENTS:
      for path in args[:2] if event in ('os.rename', 'os.link') else args[:1]:
        if isinstance(path, (str, bytes, os.PathLike)):
          line = os.fsdecode(path).replace('\n', ' ') + '\n'
          os.write(fd, line.encode('utf-8', 'replace'))

  sys.addaudithook(audit)
  admin_server.main(argv)


if __name__ == '__main__':
  program.run(main)
