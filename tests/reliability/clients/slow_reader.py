"""Runs clients that open streams and read them very slowly.

Each line of its standard input is a command: "go" opens the streams, and "stop"
cancels them. The answer is "done". The program ends when its standard input is
closed.
"""

import asyncio
from collections.abc import Sequence
import contextlib
import sys

from absl import flags

from saxml_ext.client import sax_aio
from saxml_ext.common import program

_SAX_ROOT = flags.DEFINE_string('sax_root', None, 'The root of the cell.')
_MODEL = flags.DEFINE_string('model', None, 'The id of the model to call.')
_COUNT = flags.DEFINE_integer('count', 200, 'Streams.')
_PAUSE = flags.DEFINE_float(
  'pause', 1.0, 'The seconds between messages of every other stream.'
)
_TOKENS = flags.DEFINE_integer(
  'tokens', 1000, 'The number of tokens of an answer.'
)


async def _read(number: int) -> None:
  """Reads messages slowly; an even reader reads only the first one."""
  model = sax_aio.Model(_MODEL.value).LM()
  options = sax_aio.ModelOptions()
  options.SetExtraInput('per_example_max_decode_steps', _TOKENS.value)
  while True:
    stream = model.GenerateStream(f'{number},1,2', options)
    async with contextlib.aclosing(stream):
      async for _ in stream:
        await asyncio.sleep(_PAUSE.value if number % 2 else 3600.0)


async def _run() -> None:
  sax_aio.SetRoot(_SAX_ROOT.value)
  readers: list[asyncio.Task[None]] = []
  while line := await asyncio.to_thread(sys.stdin.readline):
    if line.strip() == 'go':
      readers = [asyncio.create_task(_read(n)) for n in range(_COUNT.value)]
    else:
      for reader in readers:
        reader.cancel()
      await asyncio.gather(*readers, return_exceptions=True)
    print('done', flush=True)


def main(argv: Sequence[str]) -> None:
  """Runs commands until standard input is closed."""
  del argv
  asyncio.run(_run())


if __name__ == '__main__':
  program.run(main)
