"""Runs model servers without models, which really join a cell."""

import asyncio
from collections.abc import Sequence

from absl import flags

from saxml_ext.admin.testing import fake_modelet
from saxml_ext.common import program
from saxml_ext.protobuf import admin_pb2
from saxml_ext.server import membership

_SAX_ROOT = flags.DEFINE_string('sax_root', None, 'The root of the cell.')
_SAX_CELL = flags.DEFINE_string('sax_cell', None, 'The cell to join.')
_PORT = flags.DEFINE_integer('port', 0, 'TCP port.')
_COUNT = flags.DEFINE_integer(
  'count', 1, 'The number of servers. More than one need --port=0.'
)
_PATHS = flags.DEFINE_list('paths', ['p.A'], 'The model paths to offer.')


async def _serve() -> None:
  joining = []
  for _ in range(_COUNT.value):
    modelet = fake_modelet.FakeModelet(*_PATHS.value, port=_PORT.value)
    await modelet.start()
    joining.append(
      membership.Membership(
        _SAX_ROOT.value,
        _SAX_CELL.value,
        admin_pb2.JoinRequest(
          address=modelet.address, model_server=modelet.spec
        ),
      ).run()
    )
  print(f'Model server is serving at {modelet.address}', flush=True)
  await asyncio.gather(*joining)


def main(argv: Sequence[str]) -> None:
  """Serves until it is killed."""
  del argv
  asyncio.run(_serve())


if __name__ == '__main__':
  program.run(main)
