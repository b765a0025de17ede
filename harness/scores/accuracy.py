"""Scores an accuracy log and writes accuracy.txt beside it.

accuracy --accuracy_log=.../mlperf_log_accuracy.json
"""

from collections.abc import Sequence
import sys

from absl import flags

from harness.benchmarks import gptj
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
  "The model's tokenizer.json. Required with --dataset. Default for the bundled"
  " articles: the bundled GPT-J's.",
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
  with program.exit_on('accuracy'):
    path = user_path.resolve(_TOKENIZER.value)
    if not path and _DATASET.value:
      raise ValueError(
        f'--dataset={_DATASET.value} needs --tokenizer_path, the tokenizer.json'
        ' of the model that answered.'
      )
    path = path or gptj.BUNDLE.tokenizer
    splitter, reason = sentences.from_flags()
    if reason:
      print(f'accuracy: rougeLsum is omitted: {reason}', file=sys.stderr)
    articles = dataset.load_articles(
      user_path.resolve(_DATASET.value) or gptj.BUNDLE.dataset
    )
    tokenizer = tokenizer_lib.load(path)
    dataset.check_tokenizer(articles, tokenizer)
    scored = scoring.score_log(
      user_path.resolve(_LOG.value),
      [article.output for article in articles],
      tokenizer,
      _DTYPE.value,
      user_path.resolve(_OUTPUT.value),
      tokenizer_lib.cleans_up(path),
      splitter.split if splitter else None,
    )
  print(scored.scores.line)


if __name__ == '__main__':
  flags.mark_flag_as_required('accuracy_log')
  program.run(main)
