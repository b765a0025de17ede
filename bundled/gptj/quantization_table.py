"""Prints the table of docs/quantize.md: int8 and the bundled model.

bazel run //bundled/gptj:quantization_table [-- --base=HF_DIR]

It takes as long as eight runs of the main job.
"""

import itertools
import tempfile

from absl import flags

from bundled.gptj import settings_table
from bundled.news import corpus
from converters.convert import conversion
from harness.benchmarks import gptj
from saxml_ext.common import program
from saxml_ext.common import user_path
from saxml_ext.evaluation import dataset

_BASE = flags.DEFINE_string(
  'base', None, 'The Hugging Face directory. Default: the bundled model.'
)
_ARTICLES = flags.DEFINE_integer(
  'articles', 512, 'The maximum number of articles to score.', lower_bound=1
)
_CALIBRATION = flags.DEFINE_integer(
  'calibration_count', 64, 'The number of articles for calibration.', 1
)


def main(argv: list[str]) -> None:
  del argv
  base = user_path.resolve(_BASE.value) or gptj.BUNDLE.model
  articles = dataset.load_articles(gptj.BUNDLE.dataset)
  with tempfile.TemporaryDirectory() as directory:
    source = f'{directory}/float'
    conversion.convert(base, source, 'float32')
    for line in settings_table.lines(
      source,
      tuple(corpus.stories('train', _CALIBRATION.value)),
      tuple(itertools.islice(articles, _ARTICLES.value)),
      directory,
    ):
      print(line, flush=True)


if __name__ == '__main__':
  program.run(main)
