"""Runs many clients that watch models of a cell, each with its own connection.

When all clients wait, it prints one line, "watching at host:port", with the
admin server's address.
"""

import asyncio
from collections.abc import Sequence

from absl import flags
import grpc

from saxml_ext.common import cell
from saxml_ext.common import program
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import admin_pb2_grpc

_SAX_ROOT = flags.DEFINE_string('sax_root', None, 'The root of the cell.')
_SAX_CELL = flags.DEFINE_string('sax_cell', None, 'The cell.')
_PORT = flags.DEFINE_integer('port', 0, 'Has no effect.')
_COUNT = flags.DEFINE_integer('count', 1000, 'How many clients.')
_MODELS = flags.DEFINE_integer(
  'models', 1000, 'The number of watched models: m0, m1, ...'
)
# The pause before another request for a missing model, in seconds.
_PAUSE = 1.0


async def _watch(address: str, model_id: str, ready: asyncio.Event) -> None:
  options = [('grpc.use_local_subchannel_pool', 1)]
  async with grpc.aio.insecure_channel(address, options=options) as channel:
    stub = admin_pb2_grpc.AdminStub(channel)
    await stub.List(admin_pb2.ListRequest(model_id=model_id))
    ready.set()
    request = admin_pb2.WatchLocRequest(model_id=model_id)
    while True:
      try:
        response = await stub.WatchLoc(request)
      except grpc.aio.AioRpcError:
        await asyncio.sleep(_PAUSE)
        request.seqno = 0
        continue
      request.seqno = response.result.next_seqno
      request.admin_server_id = response.admin_server_id


async def _serve() -> None:
  address = cell.read_location(_SAX_ROOT.value, _SAX_CELL.value).location
  tasks = []
  for number in range(_COUNT.value):
    ready = asyncio.Event()
    model_id = f'{_SAX_CELL.value}/m{number % _MODELS.value}'
    tasks.append(asyncio.create_task(_watch(address, model_id, ready)))
    await ready.wait()
  print(f'watching at {address}', flush=True)
  await asyncio.gather(*tasks)


def main(argv: Sequence[str]) -> None:
  """Watches until it is killed."""
  del argv
  asyncio.run(_serve())


if __name__ == '__main__':
  program.run(main)
