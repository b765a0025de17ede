"""Asks a model without pause, until stdin is closed; prints what came of it.

Prints "asking" after the first answer, at the end a line of JSON:
{"answers": 1234, "longest_secs": 0.5, "errors": ["..."]}.
"""

from collections.abc import Sequence
import json
import sys
import threading
import time

from absl import app
from absl import flags

from saxml_ext.client import sax
from saxml_ext.common import errors

_MODEL = flags.DEFINE_string('model', None, 'Id of the model.', required=True)
_PROMPT = '5,6,7'
_ANSWER = '5,6,7'
_TIMEOUT_SECS = 30.0
_PAUSE_SECS = 0.005


def main(argv: Sequence[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'unexpected argument {argv[1]!r}')
  closed = threading.Event()
  threading.Thread(
      target=lambda: (sys.stdin.read(), closed.set()), daemon=True
  ).start()
  model = sax.Model(_MODEL.value).LM()
  options = sax.ModelOptions(_TIMEOUT_SECS)
  answers, longest, failures = 0, 0.0, []
  while not closed.wait(_PAUSE_SECS):
    begin = time.monotonic()
    try:
      (text, _), *_ = model.Generate(_PROMPT, options)
      if text != _ANSWER:
        failures.append(f'answered {text!r} instead of {_ANSWER!r}')
    except errors.SaxError as e:
      failures.append(f'{e.code.name}: {e.message}')
    longest = max(longest, time.monotonic() - begin)
    if not answers:
      print('asking', flush=True)
    answers += 1
  print(
      json.dumps(
          {'answers': answers, 'longest_secs': longest, 'errors': failures}
      )
  )


if __name__ == '__main__':
  app.run(main)
