"""Keeps gRPC from logging every server that disconnects.

Programs import this before everything else, because gRPC reads its log level
from the environment once, when it is imported.
"""

import os

os.environ.setdefault('GRPC_VERBOSITY', 'ERROR')
