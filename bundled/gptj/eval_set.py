"""Writes bundled articles in the schema of MLPerf's cnn_eval.json.

bazel run //bundled/gptj:eval_set -- --output=/tmp/eval.json
bazel run //bundled/gptj:eval_set -- --output=/tmp/cal.json --split=train
"""

import dataclasses
import json

from absl import flags

from bundled.news import corpus
from saxml_ext.common import program
from saxml_ext.common import user_path

_OUTPUT = flags.DEFINE_string(
  'output', None, 'The JSON file to write.', required=True
)
_COUNT = flags.DEFINE_integer(
  'count', corpus.RECORDED, 'The number of articles.', 1
)
_SPLIT = flags.DEFINE_enum(
  'split',
  'eval',
  ['eval', 'train'],
  'The articles for evaluation, or those for training and calibration.',
)


def main(argv: list[str]) -> None:
  del argv
  rows = [
    {k: v for k, v in dataclasses.asdict(story).items() if v}
    for story in corpus.stories(_SPLIT.value, _COUNT.value)
  ]
  with open(user_path.resolve(_OUTPUT.value), 'w', encoding='utf-8') as file:
    json.dump(rows, file, indent=1)
    file.write('\n')


if __name__ == '__main__':
  program.run(main)
