"""One LoadGen run against a model of a running cell."""

from collections.abc import Sequence

from absl import flags

from harness.data import summarization
from harness.loadgen import runner
from harness.loadgen import target
from harness.network import cell_name
from harness.systems import cell
from saxml_ext.common import program

_MODEL_PATH = flags.DEFINE_string(
  'model_path', None, 'Model id, /sax/<cell>/<model>.'
)
_SAX_ROOT = flags.DEFINE_string(
  'sax_root', None, "Root of the model's cell. Default: $SAX_ROOT."
)
_DATASET_PATH = flags.DEFINE_string('dataset_path', None, 'Evaluation file.')
_TOKENIZER_PATH = flags.DEFINE_string('tokenizer_path', None, 'tokenizer.json')
_MAX_INPUT_LENGTH = flags.DEFINE_integer(
  'max_input_length', None, 'Tokens after which a prompt is cut.', 1
)
_SAMPLE_COUNT = flags.DEFINE_integer(
  'sample_count', 0, 'Articles to take; 0: all.'
)
_NETWORK = flags.DEFINE_enum(
  'network',
  None,
  ['lon'],
  "lon: the run is one of LoadGen over the network; LoadGen's log names the"
  ' model and its servers as a Network SUT.',
)
_STREAM = flags.DEFINE_bool(
  'stream',
  False,
  'Streams the answers, so that the timeline has the times of first tokens. For'
  ' models that sample, on servers that stream; beam search does not.',
)

# The silence watch is what ends a run. The deadline only tells the server when
# nobody can be waiting any more; a request may spend most of its time in the
# server's queue, so it must be far longer.
_DEADLINE_FACTOR = 20


def main(argv: Sequence[str]) -> None:
  del argv
  runner.main(_subject)


def _subject() -> runner.Subject:
  task = summarization.Source(
    _DATASET_PATH.value,
    _TOKENIZER_PATH.value,
    _MAX_INPUT_LENGTH.value,
    _SAMPLE_COUNT.value,
  ).load()
  model = target.Target(_MODEL_PATH.value, _SAX_ROOT.value)
  generate = cell.generator(
    model, runner.silence_secs() * _DEADLINE_FACTOR, _STREAM.value
  )
  return runner.Subject(
    cell.CellSystem(
      generate, task.prompts, summarization.end_ids(task.tokenizer)
    ),
    [len(prompt) for prompt in task.prompts],
    (lambda: cell_name.ask(model)) if _NETWORK.value else None,
  )


if __name__ == '__main__':
  runner.mark_flags_as_required()
  flags.mark_flags_as_required(
    ['model_path', 'dataset_path', 'tokenizer_path', 'max_input_length']
  )
  program.run(main)
