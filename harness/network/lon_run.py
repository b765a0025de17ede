"""One LoadGen run of GPT-J's task against a system on other nodes."""

from collections.abc import Sequence

from absl import flags

from harness.data import summarization
from harness.loadgen import runner
from harness.network import lon
from harness.network import payload
from saxml_ext.common import program
from saxml_ext.evaluation import dataset

_DATASET_PATH = flags.DEFINE_string('dataset_path', None, 'Evaluation file.')
_TOKENIZER_PATH = flags.DEFINE_string('tokenizer_path', None, 'tokenizer.json')
_MAX_INPUT_LENGTH = flags.DEFINE_integer(
  'max_input_length', None, 'Tokens after which a prompt is cut.', 1
)
_SAMPLE_COUNT = flags.DEFINE_integer(
  'sample_count', 0, 'Articles to take; 0: all.'
)


def main(argv: Sequence[str]) -> None:
  del argv
  runner.main(lambda: lon.subject(_payloads()))


def _payloads() -> list[payload.Payload]:
  """Token ids of each prompt, int32 [T], as "input_ids"."""
  task = summarization.Source(
    _DATASET_PATH.value,
    _TOKENIZER_PATH.value,
    _MAX_INPUT_LENGTH.value,
    _SAMPLE_COUNT.value,
  ).load()
  prompts = dataset.encode_prompts(
    task.articles, task.tokenizer, task.max_input_length
  )
  return [{'input_ids': ids} for ids in prompts]


if __name__ == '__main__':
  runner.mark_flags_as_required()
  flags.mark_flags_as_required(
    ['dataset_path', 'tokenizer_path', 'max_input_length']
  )
  program.run(main)
