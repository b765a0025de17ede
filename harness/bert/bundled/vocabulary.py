"""Trains the WordPiece vocabulary of the bundled BERT.

bazel run //harness/bert/bundled:vocabulary -- --output_dir=/tmp/bert

Writes `vocab.txt`, one token a line, as BERT's tokenizers read it.
"""

from collections.abc import Iterator
import os
import string

from absl import app
from absl import flags
import tokenizers
from tokenizers import models
from tokenizers import normalizers
from tokenizers import pre_tokenizers
from tokenizers import trainers

from harness.bert.bundled import passages
from harness.bert.bundled import questions
from saxml_ext.common import user_path

_OUTPUT_DIR = flags.DEFINE_string(
  'output_dir', None, 'Directory to write vocab.txt to.', required=True
)
_PASSAGES = flags.DEFINE_integer(
  'passages', 12_000, 'Training passages to learn from.', lower_bound=1
)

VOCAB_SIZE = 4000
SPECIAL = ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]')
_CHARACTERS = string.ascii_lowercase + string.digits + string.punctuation
_PREFIX = '##'


def train(texts: Iterator[str], size: int = VOCAB_SIZE) -> list[str]:
  """Learns `size` tokens from lower-cased texts.

  The tokens of SPECIAL come first. Every letter, digit and punctuation mark of
  ASCII is in, alone and as a continuation, so that no such word is unknown.

  Returns:
    The tokens in the order of their ids.

  Raises:
    ValueError: the texts are too few for so many tokens.
  """
  pieces = tokenizers.Tokenizer(models.WordPiece(unk_token='[UNK]'))
  pieces.normalizer = normalizers.BertNormalizer(lowercase=True)
  pieces.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
  inside = [_PREFIX + c for c in string.ascii_lowercase + string.digits]
  trainer = trainers.WordPieceTrainer(
    vocab_size=size - len(inside),
    special_tokens=list(SPECIAL),
    initial_alphabet=list(_CHARACTERS),
    continuing_subword_prefix=_PREFIX,
    show_progress=False,
  )
  pieces.train_from_iterator(texts, trainer)
  learned = set(pieces.get_vocab())
  if len(learned) < size - len(inside):
    raise ValueError(
      f'the vocabulary has {len(learned)} tokens, expected about {size}: give'
      ' it more text with --passages'
    )
  # The trainer numbers continuations as its hash map has them, each time
  # otherwise; the order of the tokens decides nothing, so it is fixed here.
  return [*SPECIAL, *sorted((learned | set(inside)) - set(SPECIAL))]


def training_texts(count: int) -> Iterator[str]:
  """Yields `count` training passages, each with its questions."""
  for index in range(count):
    passage = passages.write_passage('train', index)
    yield passage.text
    for asked in questions.ask('train', index, passage, most=3):
      yield asked.text


def main(argv: list[str]) -> None:
  del argv
  out = user_path.resolve(_OUTPUT_DIR.value)
  os.makedirs(out, exist_ok=True)
  pieces = train(training_texts(_PASSAGES.value))
  with open(os.path.join(out, 'vocab.txt'), 'w', encoding='utf-8') as file:
    file.write('\n'.join(pieces) + '\n')


if __name__ == '__main__':
  app.run(main)
