"""Runs a script of calls in one process of a group, with its own Runner.

  scripted --script=FILE --result=FILE [--coordinator_address=HOST:PORT
      --num_processes=N --process_id=I]

No log connects the processes. All of them run the same script, so their calls
are the same in the same order. Without a coordinator, the process is alone. Its
answers are then those that a group must give.

The script is a JSON list of cases:

  {"params": model path, "checkpoint": directory, "overrides": {name: value},
   "requests": [{"tokens": [...], other fields of engine.request.Request}],
   "scores": [[prefix, suffix], ...], "programs": [directories of sets],
   "compile": directory of a set to write, instead of answers}

The result is a list in the same order. Its elements are {"tokens": hypotheses
by request, "logprobs": the same, "scores", "identity", "own_bytes", "bits"} or
{"error": message}. own_bytes is the size of the weights on the first device of
this process. bits are the digests of the engine's state after each call.
"""

from collections.abc import Mapping, Sequence
import json
from typing import Any

from absl import flags
import jax
import numpy as np

from saxml_ext.aot import compile_set
from saxml_ext.common import errors
from saxml_ext.common import program
from saxml_ext.engine import request as request_lib
from saxml_ext.engine import runner as runner_lib
from saxml_ext.engine.testing import serving
from saxml_ext.engine.testing import state_bits
from saxml_ext.params import gptj  # noqa: F401 Registers or sets up.
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.loading import loader
from saxml_ext.server.programs import programs
from tests.groups.engine import member

_SCRIPT = flags.DEFINE_string('script', None, 'Cases.', required=True)
_RESULT = flags.DEFINE_string('result', None, 'Answers.', required=True)


def main(argv: Sequence[str]) -> None:
  del argv
  member.join()
  with open(_SCRIPT.value, encoding='utf-8') as file:
    cases = json.load(file)
  results = [_answer(case) for case in cases]
  with open(_RESULT.value, 'w', encoding='utf-8') as file:
    json.dump(results, file)


def _answer(case: Mapping[str, Any]) -> dict[str, Any]:
  overrides = {k: json.dumps(v) for k, v in case['overrides'].items()}
  spec = entry_lib.Spec(case['params'], case['checkpoint'], overrides, acls={})
  if 'compile' in case:
    return _compile(loader.plan(spec), case['compile'])
  try:
    sets = programs.Programs.open(case.get('programs', ()))
    ready = loader.prepare(spec, sets)
  except errors.SaxError as e:
    return {'error': e.message}
  weights = ready.run.signature(ready.run.keys()[0]).args[0]
  runner = ready.start()
  bits: list[dict[str, str]] = []
  results = serving.serve(
    runner,
    [_request(r) for r in case['requests']],
    after_call=lambda: bits.append(state_bits.digests(runner)),
  )
  return {
    'tokens': serving.tokens(results),
    'logprobs': [[h.logprob for h in r.hypotheses] for r in results],
    'scores': _scores(runner, case['scores']),
    'identity': dict(ready.identity),
    'own_bytes': sum(map(_own_bytes, jax.tree.leaves(weights))),
    'bits': bits,
  }


def _compile(made: loader.Plan, path: str) -> dict[str, Any]:
  run = made.executables()
  compile_set.compile_set(path, run, run.keys(), made.serving, stablehlo=False)
  return {}


def _request(fields: Mapping[str, Any]) -> request_lib.Request:
  tokens = np.asarray(fields['tokens'], np.int32)
  return request_lib.Request(**{**fields, 'tokens': tokens})


def _scores(
  runner: runner_lib.Runner, pairs: Sequence[Sequence[Sequence[int]]]
) -> list[float]:
  return [runner.score(*map(np.asarray, pair)) for pair in pairs]


def _own_bytes(x: jax.ShapeDtypeStruct) -> int:
  shape = x.shape if x.sharding is None else x.sharding.shard_shape(x.shape)
  return int(np.prod(shape)) * x.dtype.itemsize


if __name__ == '__main__':
  program.run(main)
