"""Scores an accuracy log and writes accuracy.txt beside it.

accuracy --accuracy_log=.../mlperf_log_accuracy.json --dataset=eval.json
"""

from collections.abc import Sequence
import sys

from absl import flags

from harness.data import bundle
from harness.data import sentences
from harness.results import scoring
from saxml_ext.common import program
from saxml_ext.common import user_path
from saxml_ext.evaluation import dataset
from saxml_ext.evaluation import tokenizer as tokenizer_lib

_LOG = flags.DEFINE_string(
  'accuracy_log', None, 'The mlperf_log_accuracy.json of an accuracy run.'
)
_DATASET = flags.DEFINE_string(
  'dataset',
  None,
  'The evaluation file of the run, a JSON list of instruction, input, output.'
  ' Default: the bundled articles.',
)
_TOKENIZER = flags.DEFINE_string(
  'tokenizer_path',
  None,
  "The model's tokenizer.json. Default: the bundled model's.",
)
_DTYPE = flags.DEFINE_enum(
  'dtype',
  'int64',
  ['int64', 'int32', 'float32'],
  'The type of the token IDs in the log.',
)
_OUTPUT = flags.DEFINE_string(
  'output',
  None,
  'The file for the scores. Default: accuracy.txt next to the log.',
)


def main(argv: Sequence[str]) -> None:
  del argv
  articles = user_path.resolve(_DATASET.value) or bundle.eval_path()
  tokenizer = user_path.resolve(_TOKENIZER.value) or bundle.tokenizer_path()
  with program.exit_on('accuracy'):
    splitter, reason = sentences.of_flags()
    if reason:
      print(f'accuracy: rougeLsum is omitted: {reason}', file=sys.stderr)
    scored = scoring.score_log(
      user_path.resolve(_LOG.value),
      [article.output for article in dataset.load_articles(articles)],
      tokenizer_lib.load(tokenizer),
      _DTYPE.value,
      user_path.resolve(_OUTPUT.value),
      tokenizer_lib.cleans_up(tokenizer),
      splitter and splitter.split,
    )
  print(scored.scores.line)


if __name__ == '__main__':
  flags.mark_flag_as_required('accuracy_log')
  program.run(main)
