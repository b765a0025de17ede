"""Counts the decode steps of reference beam search per token of the answer.

Beam search with early stopping ends when four hypotheses are complete. The best
of them may have been complete for some time. A request therefore occupies its
slot for more steps than its answer has tokens. `//saxml_ext/aot:report` uses
the ratio that this program prints:

    bazel run //harness/systems/engine:answer_steps
"""

from collections.abc import Sequence

from absl import flags
import numpy as np

from harness.data import bundle
from saxml_ext.common import program
from saxml_ext.engine import request as request_lib
from saxml_ext.engine import runner as runner_lib
from saxml_ext.evaluation import dataset
from saxml_ext.evaluation import tokenizer as tokenizer_lib
from saxml_ext.params import all_params  # noqa: F401 Registers them.
from saxml_ext.server import jax_setup
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.loading import loader

_COUNT = flags.DEFINE_integer(
  'count', 0, 'Articles from the front of the set; 0: all.', lower_bound=0
)


def main(argv: Sequence[str]) -> None:
  del argv
  jax_setup.configure(None)
  model = loader.prepare(
    entry_lib.Spec(bundle.PARAMS, bundle.pax_checkpoint() or '', {}, acls={})
  )
  prompts = dataset.encode_prompts(
    dataset.load_articles(bundle.eval_path(), _COUNT.value),
    tokenizer_lib.load(bundle.tokenizer_path()),
    bundle.MAX_INPUT_LENGTH,
  )
  ends = model.settings.end_ids
  tokens = np.array(
    [
      (steps, np.sum(~np.isin(best, ends)))
      for steps, best in count(model.start(), prompts)
    ]
  )
  steps, answers = tokens.mean(0)
  longest = np.mean(tokens[:, 0] == tokens[:, 0].max())
  print(
    f'{len(tokens)} answers of {answers:.1f} tokens took {steps:.1f} steps:'
    f' {steps / answers:.3f} steps per token; {longest:.0%} ran to the limit of'
    f' {tokens[:, 0].max()} steps'
  )


def count(
  runner: runner_lib.Runner, prompts: Sequence[np.ndarray]
) -> list[tuple[int, np.ndarray]]:
  """Returns the steps and the best hypothesis of each prompt.

  The token that the prefill chooses counts as a step.
  """
  found: dict[int, tuple[int, np.ndarray]] = {}
  begun: dict[int, tuple[int, int]] = {}
  waiting = list(enumerate(prompts))[::-1]
  now = 0
  while waiting or begun:
    new = {}
    free = [slot for slot in range(runner.num_slots) if slot not in begun]
    for slot in free[: len(waiting)]:
      index, prompt = waiting.pop()
      begun[slot] = index, now
      new[slot] = request_lib.Request(prompt)
    runner.prefill_and_insert(new)
    results = runner.step(1)
    now += 1
    for slot, result in results.items():
      index, start = begun.pop(slot)
      found[index] = 1 + now - start, result.hypotheses[0].tokens
  return [found[index] for index in range(len(prompts))]


if __name__ == '__main__':
  program.run(main)
