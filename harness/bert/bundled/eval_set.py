"""Writes the bundled questions in the schema of SQuAD v1.1.

bazel run //harness/bert/bundled:eval_set -- --output=/tmp/squad.json
"""

import json

from absl import app
from absl import flags

from harness.bert.bundled import evaluation
from saxml_ext.common import user_path

_OUTPUT = flags.DEFINE_string(
  'output', None, 'JSON file to write.', required=True
)


def main(argv: list[str]) -> None:
  del argv
  with open(user_path.resolve(_OUTPUT.value), 'w', encoding='utf-8') as file:
    json.dump(evaluation.squad(), file, indent=1)
    file.write('\n')


if __name__ == '__main__':
  app.run(main)
