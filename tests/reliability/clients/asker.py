"""Calls a cell at a constant rate, and records each call.

It is a separate program, so an attacker can slow it down only through the
servers. It ends when its standard input is closed.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
import contextlib
import sys
import time
from typing import Any, IO

from absl import flags

from saxml_ext.client import sax_aio
from saxml_ext.common import program

_SAX_ROOT = flags.DEFINE_string('sax_root', None, 'The root of the cell.')
_MODEL = flags.DEFINE_string('model', None, 'The id of the model to call.')
_WHAT = flags.DEFINE_enum(
  'what', 'generate', ['generate', 'list'], 'The call to make.'
)
_ADDRESS = flags.DEFINE_string(
  'address', '', 'The model server to call. Default: those of the cell.'
)
_RATE = flags.DEFINE_float('rate', 20.0, 'Calls a second.', lower_bound=0)
_TOKENS = flags.DEFINE_integer(
  'tokens', 1, 'The number of tokens of an answer.'
)
_TIMEOUT = flags.DEFINE_float(
  'timeout', 60.0, 'The timeout of a call in seconds.'
)
_FAIL_FAST = flags.DEFINE_bool('fail_fast', False, 'Try nothing again.')
_OUTPUT = flags.DEFINE_string('output', None, 'The file for the log of calls.')

_Ask = Callable[[int], Coroutine[Any, Any, Any]]


def _ask() -> _Ask:
  """Returns the function that makes a call, given its number."""
  if _WHAT.value == 'list':
    admin_options = sax_aio.AdminOptions(_TIMEOUT.value)
    return lambda _: sax_aio.List(_MODEL.value, admin_options)
  model = sax_aio.Model(
    _MODEL.value,
    sax_aio.Options(proxy_addr=_ADDRESS.value, fail_fast=_FAIL_FAST.value),
  ).LM()
  options = sax_aio.ModelOptions(_TIMEOUT.value)
  options.SetExtraInput('per_example_max_decode_steps', _TOKENS.value)
  return lambda n: model.Generate(f'{n % 50_000},{n // 50_000},9', options)


async def _call(ask: _Ask, number: int, output: IO[str]) -> None:
  begin = time.monotonic()
  code = 'OK'
  try:
    await ask(number)
  except sax_aio.SaxError as e:
    code = e.code.name + ('+hint' if e.retry_after is not None else '')
  output.write(f'{begin:.6f} {time.monotonic() - begin:.6f} {code}\n')


async def _run() -> None:
  if _SAX_ROOT.value:
    sax_aio.SetRoot(_SAX_ROOT.value)
  ask = _ask()
  calls: set[asyncio.Task[None]] = set()
  ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
  with open(_OUTPUT.value, 'w', encoding='ascii', buffering=1) as output:
    due, number = time.monotonic(), 0
    while not ended.done():
      call = asyncio.create_task(_call(ask, number, output))
      calls.add(call)
      call.add_done_callback(calls.discard)
      number += 1
      due += 1 / _RATE.value
      await asyncio.sleep(max(0.0, due - time.monotonic()))
    with contextlib.suppress(TimeoutError):
      async with asyncio.timeout(_TIMEOUT.value):
        await asyncio.gather(*calls)


def main(argv: Sequence[str]) -> None:
  """Makes calls until standard input is closed."""
  del argv
  asyncio.run(_run())


if __name__ == '__main__':
  program.run(main)
