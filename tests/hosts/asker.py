"""Calls a model continuously until stdin is closed; prints the results.

It prints "asking" after the first answer. At the end, it prints a line of JSON:
{"answers": 1234, "longest_secs": 0.5, "errors": ["..."]}.
"""

from collections.abc import Sequence
from concurrent import futures
import dataclasses
import json
import sys
import threading
import time

from absl import flags

from saxml_ext.client import sax
from saxml_ext.client.models import lm
from saxml_ext.common import errors
from saxml_ext.common import program

_MODEL = flags.DEFINE_string(
  'model', None, 'The id of the model.', required=True
)
_PROMPT = '5,6,7'
_ANSWER = '5,6,7'
_TIMEOUT_SECS = 30.0
_PAUSE_SECS = 0.005
_THREADS = 8


def main(argv: Sequence[str]) -> None:
  del argv
  closed = threading.Event()
  threading.Thread(
    target=lambda: (sys.stdin.read(), closed.set()), daemon=True
  ).start()
  model = sax.Model(_MODEL.value).LM()
  with futures.ThreadPoolExecutor(_THREADS) as pool:
    told = [
      pool.submit(_ask, model, closed, first=not i) for i in range(_THREADS)
    ]
  results = [each.result() for each in told]
  print(
    json.dumps(
      {
        'answers': sum(r.answers for r in results),
        'longest_secs': max(r.longest for r in results),
        'errors': [e for r in results for e in r.errors],
      }
    )
  )


@dataclasses.dataclass
class _Result:
  answers: int = 0
  longest: float = 0.0
  errors: list[str] = dataclasses.field(default_factory=list)


def _ask(model: lm.LM, closed: threading.Event, first: bool) -> _Result:
  options = sax.ModelOptions(_TIMEOUT_SECS)
  result = _Result()
  while not closed.wait(_PAUSE_SECS):
    begin = time.monotonic()
    try:
      (text, _), *_ = model.Generate(_PROMPT, options)
      if text != _ANSWER:
        result.errors.append(f'answered {text!r} instead of {_ANSWER!r}')
    except errors.SaxError as e:
      result.errors.append(f'{e.code.name}: {e.message}')
    result.longest = max(result.longest, time.monotonic() - begin)
    if first and not result.answers:
      print('asking', flush=True)
    result.answers += 1
  return result


if __name__ == '__main__':
  program.run(main)
