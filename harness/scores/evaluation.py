r"""Scores an accuracy log with the command line of the published evaluation.py.

evaluation --mlperf-accuracy-file=.../mlperf_log_accuracy.json \
    --dataset-file=cnn_eval.json [--dtype=int32]

prints the same text as that program. //harness:accuracy also writes
accuracy.txt.
"""

from collections.abc import Sequence
import os
import sys

from absl import app
from absl import flags
import nltk.data
from nltk.tokenize import punkt

from harness import dashes
from harness.caching import cache as cache_lib
from harness.data import bundle
from harness.data import official
from saxml_ext.common import user_path
from saxml_ext.evaluation import dataset
from saxml_ext.evaluation import rouge
from saxml_ext.evaluation import tokenizer as tokenizer_lib

_MODEL = os.path.join('tokenizers', 'punkt_tab', 'english')


class Splitter:
  """Splits English texts into sentences."""

  def __init__(self, *directories: str):
    """Reads the parameters of Punkt.

    Args:
      *directories: The directories of nltk's data, as
        `nltk.download('punkt_tab')` fills them. The first directory that has
        the parameters is used.

    Raises:
      ValueError: The parameters are missing or cannot be read.
    """
    # nltk treats relative paths as unsafe.
    absolute = [os.path.abspath(path) for path in directories]
    for path in absolute:
      if os.path.isdir(os.path.join(path, _MODEL)):
        self._punkt = _load(path)
        return
    raise ValueError(
      f'There is no {_MODEL} in {", ".join(absolute)}. Download it with:'
      f' python3 -m nltk.downloader -d {absolute[0]} punkt_tab (older versions'
      ' of nltk read punkt, without _tab)'
    )

  def split(self, text: str) -> list[str]:
    """Returns the sentences of a text, equal to those of nltk.sent_tokenize."""
    return list(self._punkt.tokenize(text))


def _load(directory: str) -> punkt.PunktTokenizer:
  before = list(nltk.data.path)
  nltk.data.path.insert(0, directory)
  try:
    return punkt.PunktTokenizer('english')
  except (LookupError, OSError, ValueError) as error:
    raise ValueError(
      f'{os.path.join(directory, _MODEL)} cannot be used: {error}'
    ) from error
  finally:
    nltk.data.path[:] = before


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
flags.DEFINE_alias('model_name_or_path', 'checkpoint_path')
_DTYPE = flags.DEFINE_enum(
  'dtype',
  'int64',
  ['int64', 'int32', 'float32'],
  'The type of the token IDs in the log.',
)
_NLTK_DATA = flags.DEFINE_string(
  'nltk_data',
  None,
  "The directory of nltk's data with punkt_tab, which rougeLsum needs."
  ' Default: $NLTK_DATA. Without both, rougeLsum is omitted.',
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
  splitter = _splitter()
  articles = dataset.load_articles(
    user_path.resolve(_DATASET.value) or bundle.eval_path()
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
  split = None if splitter is None else splitter.split
  return rouge.score_texts(predictions, references, split=split)


def _splitter() -> Splitter | None:
  """Returns the sentence splitter, or None if nltk's data is not available.

  Raises:
    ValueError: The data is not in the directory that --nltk_data names.
  """
  if _NLTK_DATA.value:
    return Splitter(user_path.resolve(_NLTK_DATA.value))
  # The variable may list several directories, as PATH does.
  listed = list(filter(None, os.environ.get('NLTK_DATA', '').split(os.pathsep)))
  if not listed:
    _say(
      "rougeLsum is omitted, because it needs nltk's punkt_tab (--nltk_data or"
      ' $NLTK_DATA). The other scores do not need it.'
    )
    return None
  try:
    return Splitter(*listed)
  except ValueError as error:  # The variable may be for another program.
    _say(f'rougeLsum is omitted: {error}')
    return None


def _tokenizer_path() -> str:
  if _CHECKPOINT.value:
    return user_path.resolve(_CHECKPOINT.value)
  if not _DATASET.value:
    return bundle.model_dir()
  try:
    return official.path('gptj', 'tokenizer', cache_lib.get())
  except ValueError as error:
    raise ValueError(f'{error}\nOr pass --checkpoint_path.') from error


def _say(text: str) -> None:
  print(f'evaluation: {text}', file=sys.stderr)


if __name__ == '__main__':
  flags.mark_flag_as_required('mlperf_accuracy_file')
  dashes.run(main)
