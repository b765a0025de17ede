"""Writes the bundled questions in the schema of SQuAD v1.1.

bazel run //bundled/bert:eval_set -- --output=/tmp/squad.json
"""

import json

from absl import flags

from bundled.bert import evaluation
from saxml_ext.common import files
from saxml_ext.common import program
from saxml_ext.common import user_path

_OUTPUT = flags.DEFINE_string(
  'output', None, 'The JSON file to write.', required=True
)


def main(argv: list[str]) -> None:
  del argv
  text = json.dumps(evaluation.squad(), indent=1) + '\n'
  try:
    with files.replacing(user_path.resolve(_OUTPUT.value)) as file:
      file.write(text)
  except OSError as error:
    raise SystemExit(
      f'eval_set: --output cannot be written: {error}'
    ) from error


if __name__ == '__main__':
  program.run(main)
