"""Trains the WordPiece vocabulary of the bundled BERT.

bazel run //bundled/bert:vocabulary -- --output_dir=/tmp/bert

The program writes `vocab.txt`, with one token per line, as BERT's tokenizers
expect it.
"""

import os

from absl import flags

from bundled.bert import word_pieces
from saxml_ext.common import files
from saxml_ext.common import program
from saxml_ext.common import user_path

_OUTPUT_DIR = flags.DEFINE_string(
  'output_dir', None, 'The output directory of vocab.txt.', required=True
)
_PASSAGES = flags.DEFINE_integer(
  'passages', 12_000, 'The number of training passages.', lower_bound=1
)


def main(argv: list[str]) -> None:
  del argv
  out = user_path.resolve(_OUTPUT_DIR.value)
  texts = word_pieces.training_texts(_PASSAGES.value)
  try:
    os.makedirs(out, exist_ok=True)
    text = '\n'.join(word_pieces.train(texts)) + '\n'
    with files.replacing(os.path.join(out, 'vocab.txt')) as file:
      file.write(text)
  except (OSError, ValueError) as error:
    raise SystemExit(f'vocabulary: {error}') from error


if __name__ == '__main__':
  program.run(main)
