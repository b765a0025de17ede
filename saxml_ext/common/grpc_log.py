"""Keeps gRPC from logging every server that goes away.

Programs import this before everything else: gRPC reads its log level from the
environment once, when it is imported itself.
"""

import os

os.environ.setdefault('GRPC_VERBOSITY', 'ERROR')
