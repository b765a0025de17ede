"""Scores an accuracy log of BERT, with the flags of accuracy-squad.py.

accuracy --vocab_file=vocab.txt --val_data=dev-v1.1.json
  --log_file=.../mlperf_log_accuracy.json
"""

from collections.abc import Sequence
import json

from absl import flags

from harness.benchmarks import bert
from harness.bert import features
from harness.bert import span_scoring
from saxml_ext.common import files
from saxml_ext.common import program
from saxml_ext.common import user_path

_VOCAB_FILE = flags.DEFINE_string('vocab_file', None, "The model's vocab.txt.")
_VAL_DATA = flags.DEFINE_string(
  'val_data',
  None,
  'The questions of the run, SQuAD v1.1 in JSON. Default: the bundled'
  ' questions.',
)
_LOG_FILE = flags.DEFINE_string(
  'log_file', None, 'The mlperf_log_accuracy.json of an accuracy run.'
)
_OUT_FILE = flags.DEFINE_string(
  'out_file', None, 'The JSON file for all answers. Default: none.'
)
_OUTPUT = flags.DEFINE_string(
  'output',
  None,
  'The file for the scores. Default: accuracy.txt next to the log.',
)
_OUTPUT_DTYPE = flags.DEFINE_enum(
  'output_dtype',
  'float32',
  span_scoring.DTYPES,
  'The type of the logits in the log.',
)
_OUTPUT_TRANSPOSED = flags.DEFINE_bool(
  'output_transposed', False, 'True if the log has all starts before all ends.'
)
_MAX_EXAMPLES = flags.DEFINE_integer(
  'max_examples',
  0,
  'The number of questions to count. 0 counts all. As in accuracy-squad.py,'
  ' the last of them is counted but not scored.',
  0,
)


def main(argv: Sequence[str]) -> None:
  del argv
  with program.exit_on('accuracy'):
    scored = span_scoring.score_log(
      user_path.resolve(_LOG_FILE.value),
      features.load(
        user_path.resolve(_VAL_DATA.value) or bert.BUNDLE.dataset,
        user_path.resolve(_VOCAB_FILE.value) or bert.BUNDLE.vocabulary,
      ),
      span_scoring.Format(_OUTPUT_DTYPE.value, _OUTPUT_TRANSPOSED.value),
      _MAX_EXAMPLES.value,
      user_path.resolve(_OUTPUT.value),
    )
    if _OUT_FILE.value:
      with files.replacing(user_path.resolve(_OUT_FILE.value)) as file:
        file.write(json.dumps(scored.answers, indent=4) + '\n')
  print(scored.scores.line)


if __name__ == '__main__':
  flags.mark_flag_as_required('log_file')
  program.run(main)
