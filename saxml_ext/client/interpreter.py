"""Runs a Python program that imports the client.

./bazelw build //saxml_ext/client:python
bazel-bin/saxml_ext/client/python ask.py
"""

import runpy
import sys

_USAGE = 'Usage: python <file> [<argument> ...]\n\nRuns a Python program.'


def main(argv: list[str]) -> int:
  if len(argv) < 2 or argv[1].startswith('-'):
    print(_USAGE)
    return 0 if argv[1:] == ['--help'] else 2
  sys.argv = argv[1:]
  runpy.run_path(argv[1], run_name='__main__')
  return 0


if __name__ == '__main__':
  sys.exit(main(sys.argv))
