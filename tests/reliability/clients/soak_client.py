"""Makes calls of all kinds: generates, scores, streams and cancels.

The same prompt must always get the same answer. Calls are recorded as in
`asker`. The program ends when its standard input is closed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
import contextlib
import random
import sys
import time
from typing import IO

from absl import flags

from saxml_ext.client import sax_aio
from saxml_ext.common import program

_SAX_ROOT = flags.DEFINE_string('sax_root', None, 'The root of the cell.')
_MODEL = flags.DEFINE_string('model', None, 'The id of the model to call.')
_RATE = flags.DEFINE_float('rate', 5.0, 'Calls a second.', lower_bound=0)
_SEED = flags.DEFINE_integer('seed', 0, 'The seed of the requests.')
_OUTPUT = flags.DEFINE_string('output', None, 'The file for the log of calls.')
_TIMEOUT_SECS = 120.0
_PROMPTS = 40
_GIVEN_UP_SECS = 0.5


class _Client:
  """A client that makes calls of all kinds, and compares their answers."""

  def __init__(self, output: IO[str]):
    self._model = sax_aio.Model(_MODEL.value).LM()
    self._options = sax_aio.ModelOptions(_TIMEOUT_SECS)
    self._rng = random.Random(_SEED.value)
    self._output = output
    self._known: dict[tuple[str, int], str] = {}
    self._kinds: dict[str, Callable[[int], Awaitable[str]]] = {
      'generate': self._generate,
      'score': self._score,
      'stream': self._stream,
      'given-up': self._give_up,
    }

  async def call(self) -> None:
    """Makes a call, and records its outcome."""
    kind = self._rng.choices(list(self._kinds), (5, 2, 2, 1))[0]
    number = self._rng.randrange(_PROMPTS)
    begin = time.monotonic()
    code = 'OK'
    try:
      answer = await self._kinds[kind](number)
      if answer != self._known.setdefault((kind, number), answer):
        code = f'{kind}:another-answer'
    except sax_aio.SaxError as e:
      code = f'{kind}:{e.code.name}'
      print(f'{kind}: {e.code.name}: {e.message}', file=sys.stderr, flush=True)
    except Exception as e:  # pylint: disable=broad-exception-caught
      # Any other exception of a client library is a lost request too.
      code = f'{kind}:{type(e).__name__}'
      print(f'{code}: {e}', file=sys.stderr, flush=True)
    secs = time.monotonic() - begin
    self._output.write(f'{begin:.6f} {secs:.6f} {code}\n')

  def _prompt(self, number: int) -> list[int]:
    return [1 + number, 2 + number % 7, 3]

  def _text(self, number: int) -> str:
    return ','.join(map(str, self._prompt(number)))

  async def _generate(self, number: int) -> str:
    answers = await self._model.Generate(self._text(number), self._options)
    # Scores are rounded, because another batch may change the last digits.
    return '; '.join(f'{text} {score:.3f}' for text, score in answers)

  async def _score(self, number: int) -> str:
    (logp,) = await self._model.Score(
      self._text(number), ['4,5'], self._options
    )
    return f'{logp:.3f}'

  async def _stream(self, number: int) -> str:
    text = ''
    responses = self._model.CompleteStream(
      self._prompt(number), self._options, n=1
    )
    async with contextlib.aclosing(responses):
      async for response in responses:
        for choice in response.choices:
          text += choice.text
    return text

  async def _give_up(self, number: int) -> str:
    call = asyncio.create_task(self._generate(number))
    await asyncio.sleep(self._rng.uniform(0, _GIVEN_UP_SECS))
    call.cancel()
    with contextlib.suppress(asyncio.CancelledError):
      await call  # It may have just been answered.
    return ''


async def _run() -> None:
  sax_aio.SetRoot(_SAX_ROOT.value)
  ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
  with open(_OUTPUT.value, 'w', encoding='ascii', buffering=1) as output:
    client = _Client(output)
    calls: set[asyncio.Task[None]] = set()
    due = time.monotonic()
    while not ended.done():
      call = asyncio.create_task(client.call())
      calls.add(call)
      call.add_done_callback(calls.discard)
      due += 1 / _RATE.value
      await asyncio.sleep(max(0.0, due - time.monotonic()))
    await asyncio.gather(*calls)


def main(argv: Sequence[str]) -> None:
  """Makes calls until standard input is closed."""
  del argv
  asyncio.run(_run())


if __name__ == '__main__':
  program.run(main)
