"""Calls a model continuously until stdin is closed; prints the results.

It prints "asking" after the first answer. For each line of stdin, it prints
"answered" when all calls that were in flight have been answered. At the end, it
prints a line of JSON: {"answers": 1234, "errors": ["..."]}.
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


@dataclasses.dataclass
class _Result:
  answers: int = 0
  errors: list[str] = dataclasses.field(default_factory=list)


def main(argv: Sequence[str]) -> None:
  del argv
  closed = threading.Event()
  results = [_Result() for _ in range(_THREADS)]
  model = sax.Model(_MODEL.value).LM()
  with futures.ThreadPoolExecutor(_THREADS) as pool:
    for result in results:
      pool.submit(_ask, model, closed, result)
    while not any(result.answers for result in results):
      time.sleep(_PAUSE_SECS)
    print('asking', flush=True)
    for _ in sys.stdin:
      _wait_for_next_answers(results)
      print('answered', flush=True)
    closed.set()
  print(
    json.dumps(
      {
        'answers': sum(r.answers for r in results),
        'errors': [e for r in results for e in r.errors],
      }
    )
  )


def _wait_for_next_answers(results: Sequence[_Result]) -> None:
  before = [result.answers for result in results]
  while any(r.answers == n for r, n in zip(results, before, strict=True)):
    time.sleep(_PAUSE_SECS)


def _ask(
  model: lm.BlockingLM, closed: threading.Event, result: _Result
) -> None:
  options = sax.ModelOptions(_TIMEOUT_SECS)
  while not closed.wait(_PAUSE_SECS):
    try:
      (text, _), *_ = model.Generate(_PROMPT, options)
      if text != _ANSWER:
        result.errors.append(f'answered {text!r} instead of {_ANSWER!r}')
    except errors.SaxError as e:
      result.errors.append(f'{e.code.name}: {e.message}')
    result.answers += 1


if __name__ == '__main__':
  program.run(main)
