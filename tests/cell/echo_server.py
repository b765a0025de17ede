"""Serves the language model service with a constant answer.

Its cost is that of gRPC alone.
"""

import asyncio
from collections.abc import Sequence

from absl import flags
import grpc

from saxml_ext.common import grpc_aio
from saxml_ext.common import grpc_util
from saxml_ext.common import program
from saxml_ext.protobuf import lm_pb2
from saxml_ext.protobuf import lm_pb2_grpc

_PORT = flags.DEFINE_integer('port', None, 'TCP port.', required=True)
_ANSWER = flags.DEFINE_string('answer', None, 'Text to answer.', required=True)
_BEAMS = 4


class _Echo(lm_pb2_grpc.LMServiceServicer):
  """A service that reads each request and sends a message of the usual size."""

  def __init__(self, answer: str):
    texts = [lm_pb2.DecodedText(text=answer, score=-1.0)] * _BEAMS
    self._response = lm_pb2.GenerateResponse(texts=texts)

  async def Generate(
    self, request: lm_pb2.GenerateRequest, context: grpc.aio.ServicerContext
  ) -> lm_pb2.GenerateResponse:
    return self._response


async def _serve() -> None:
  server = grpc_aio.make_server()
  lm_pb2_grpc.add_LMServiceServicer_to_server(_Echo(_ANSWER.value), server)
  grpc_util.listen(server, _PORT.value, '127.0.0.1')
  await server.start()
  await server.wait_for_termination()


def main(argv: Sequence[str]) -> None:
  del argv
  asyncio.run(_serve())


if __name__ == '__main__':
  program.run(main)
