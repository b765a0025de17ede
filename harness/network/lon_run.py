"""Runs LoadGen once on GPT-J's task against a system on other nodes."""

from collections.abc import Sequence

from harness.data import summarization
from harness.loadgen import run as run_lib
from harness.loadgen import runner
from harness.network import client
from harness.network import network_program
from harness.network import payload
from saxml_ext.common import program


def main(argv: Sequence[str]) -> None:
  run: run_lib.Run[client.Nodes] = runner.requested_run(argv, client.Nodes)
  runner.main(
    lambda: network_program.subject(run.system, _payloads(run.samples)), run
  )


def _payloads(samples: run_lib.Samples) -> list[payload.Payload]:
  """Returns the token ids of each prompt, int32 [T], as "input_ids"."""
  task = summarization.load(samples)
  return [{'input_ids': ids} for ids in task.prompt_ids]


if __name__ == '__main__':
  run_lib.keep(run_lib.Run, run_lib.Samples, client.Nodes)
  program.run(main, takes_words=True)
