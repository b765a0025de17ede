"""Learns the word pieces of the bundled BERT from its training texts."""

from collections.abc import Iterator
import string

import tokenizers
from tokenizers import models
from tokenizers import normalizers
from tokenizers import pre_tokenizers
from tokenizers import trainers

from bundled.bert import passages
from bundled.bert import questions

VOCAB_SIZE = 4000
SPECIAL = ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]')
_CHARACTERS = string.ascii_lowercase + string.digits + string.punctuation
_PREFIX = '##'


def train(texts: Iterator[str], size: int = VOCAB_SIZE) -> list[str]:
  """Learns `size` tokens from texts in lower case.

  The tokens of SPECIAL come first. Every ASCII letter, digit and punctuation
  mark is a token. Letters and digits are also continuations, so every ASCII
  word can be encoded. If pieces are equally frequent, the trainer takes any of
  them. Two runs therefore differ in a few pieces.

  Returns:
    The tokens in the order of their ids.

  Raises:
    ValueError: The texts are too few for this many tokens.
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
      f'the vocabulary has {len(learned)} tokens. Expected about {size}.'
      ' Increase --passages.'
    )
  # The trainer numbers continuations in the order of its hash map, which
  # changes from run to run. The order has no effect, so it is fixed here.
  return [*SPECIAL, *sorted((learned | set(inside)) - set(SPECIAL))]


def training_texts(count: int) -> Iterator[str]:
  """Yields `count` training passages, each with its questions."""
  for index in range(count):
    passage = passages.write_passage('train', index)
    yield passage.text
    for question in questions.ask('train', index, passage, most=3):
      yield question.text
