"""Prints how much of an evaluation set occurs in the training stories.

bazel run //bundled/summaries/baselines:overlap_table [-- --dataset=FILE]
"""

from absl import flags

from bundled.news import corpus
from bundled.summaries.baselines import overlap
from harness.benchmarks import gptj
from saxml_ext.common import program
from saxml_ext.common import user_path
from saxml_ext.evaluation import dataset

_DATASET = flags.DEFINE_string(
  'dataset', None, 'The evaluation file. Default: the 512 recorded articles.'
)
_TRAINED = flags.DEFINE_integer(
  'trained',
  corpus.TRAINED,
  'The number of training stories to compare the text with.',
)


def main(argv: list[str]) -> None:
  del argv
  articles = dataset.load_articles(
    user_path.resolve(_DATASET.value) or gptj.BUNDLE.dataset
  )
  print(f'{"":<42}{"here":>8}{"trained":>8}')
  stories = corpus.stories('train', _TRAINED.value)
  for share in overlap.measure(articles, stories):
    print(share.line)


if __name__ == '__main__':
  program.run(main)
