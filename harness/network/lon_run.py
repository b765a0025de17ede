"""One LoadGen run of GPT-J's task against a system on other nodes."""

from collections.abc import Sequence

from absl import flags

from harness.data import summarization_flags
from harness.loadgen import runner
from harness.network import lon
from harness.network import payload
from saxml_ext.common import program


def main(argv: Sequence[str]) -> None:
  del argv
  runner.main(lambda: lon.subject(_payloads()))


def _payloads() -> list[payload.Payload]:
  """Token ids of each prompt, int32 [T], as "input_ids"."""
  task = summarization_flags.load_as_given()
  return [{'input_ids': ids} for ids in task.prompt_ids]


if __name__ == '__main__':
  runner.mark_flags_as_required()
  flags.mark_flags_as_required(['tokenizer_path', 'max_input_length'])
  program.run(main)
