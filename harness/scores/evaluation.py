r"""Scores an accuracy log with the command line of the published evaluation.py.

evaluation --mlperf-accuracy-file=.../mlperf_log_accuracy.json \
    --dataset-file=cnn_eval.json [--dtype=int32]

prints the same text as that program. //harness:accuracy also writes
accuracy.txt.
"""

from collections.abc import Sequence
import sys

from absl import app
from absl import flags

from harness import dashes
from harness.benchmarks import gptj
from harness.caching import cache as cache_lib
from harness.data import official
from harness.data import sentences
from saxml_ext.common import user_path
from saxml_ext.evaluation import dataset
from saxml_ext.evaluation import rouge
from saxml_ext.evaluation import tokenizer as tokenizer_lib

_LOG = flags.DEFINE_string(
  'mlperf_accuracy_file',
  None,
  'The mlperf_log_accuracy.json of an accuracy run.',
)
_DATASET = flags.DEFINE_string(
  'dataset_file',
  None,
  'The evaluation file of the run, such as cnn_eval.json. Default: the bundled'
  ' articles.',
)
_CHECKPOINT = flags.DEFINE_string(
  'checkpoint_path',
  None,
  "The directory of the model's tokenizer, or its tokenizer.json. Default: the"
  " bundled model's for the bundled articles, otherwise GPT-J's in the cache.",
)
# The names in the evaluation.py of GPT-J and of Llama.
flags.DEFINE_alias('model_name_or_path', 'checkpoint_path')
flags.DEFINE_alias('model_name', 'checkpoint_path')
_DTYPE = flags.DEFINE_enum(
  'dtype',
  'int64',
  ['int64', 'int32', 'float32'],
  'The type of the token IDs in the log.',
)
_VERBOSE = flags.DEFINE_bool(
  'verbose', False, 'Print every answer and its target.'
)


def main(argv: Sequence[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'unexpected argument {argv[1]!r}')
  with dashes.exit_on('evaluation'):
    scores = _score()
  print(f'\nResults\n\n{scores.line}')


def _score() -> rouge.Scores:
  splitter, reason = sentences.from_flags()
  if reason:
    _say(f'rougeLsum is omitted: {reason}. The other scores do not need it.')
  articles = dataset.load_articles(
    user_path.resolve(_DATASET.value) or gptj.BUNDLE.dataset
  )
  path = _tokenizer_path()
  tokenizer = tokenizer_lib.load(path)
  dataset.check_tokenizer(articles, tokenizer)
  pairs = rouge.texts(
    rouge.read_accuracy_log(user_path.resolve(_LOG.value), _DTYPE.value),
    [article.output for article in articles],
    tokenizer,
    tokenizer_lib.cleans_up(path),
  )
  if len(pairs) < len(articles):
    _say(
      f'The log has answers to {len(pairs)} of {len(articles)} articles. An'
      ' official accuracy run answers all.'
    )
  if _VERBOSE.value:
    for index, (prediction, reference) in pairs.items():
      print(f'[{index}] answer: {prediction}\n[{index}] target: {reference}')
  predictions, references = zip(*pairs.values())
  return rouge.score_texts(
    predictions, references, split=splitter.split if splitter else None
  )


def _tokenizer_path() -> str:
  if _CHECKPOINT.value:
    return user_path.resolve(_CHECKPOINT.value)
  if not _DATASET.value:
    return gptj.BUNDLE.model
  try:
    return official.path('gptj', 'tokenizer', cache_lib.get())
  except ValueError as error:
    raise ValueError(f'{error}\nOr pass --checkpoint_path.') from error


def _say(text: str) -> None:
  print(f'evaluation: {text}', file=sys.stderr)


if __name__ == '__main__':
  flags.mark_flag_as_required('mlperf_accuracy_file')
  dashes.run(main)
