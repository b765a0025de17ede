"""Copies the headers of XLA's foreign function interface from jaxlib.

copy_headers DIRECTORY    writes DIRECTORY/xla/ffi/api/*.h
"""

import os
import shutil
import sys

from jax import ffi

_HEADERS = os.path.join('xla', 'ffi', 'api')


def main(directory: str) -> None:
  source = os.path.join(ffi.include_dir(), _HEADERS)
  shutil.copytree(source, os.path.join(directory, _HEADERS), dirs_exist_ok=True)


if __name__ == '__main__':
  main(sys.argv[1])
