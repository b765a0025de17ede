"""The protocol compiler, with its gRPC plugin for Python."""

import sys

from grpc_tools import protoc

if __name__ == '__main__':
  sys.exit(protoc.main(sys.argv))
