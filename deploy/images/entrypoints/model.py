"""What the image sax-model-server starts: a model server.

As in stock Sax's image, SAX_ROOT says where the cell is found; or GSBUCKET,
SAX_DIR, or SAX_GCS_BUCKET with SAX_REPLICA_NAME do. All arguments go to the
server.
"""

from collections.abc import Sequence
import os
import sys

from deploy.images.entrypoints import roots


def main(argv: Sequence[str]) -> None:
  root = roots.sax_root(os.environ)
  if root:
    os.environ[roots.ROOT] = root
  os.execvp('server', ['server', *argv[1:]])


if __name__ == '__main__':
  main(sys.argv)
