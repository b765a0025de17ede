"""Turns questions into what BERT reads, as the MLPerf reference does.

A paragraph that is too long for one input is cut into overlapping windows, each
of which becomes a feature: [CLS] question [SEP] window [SEP]. A feature is one
sample of LoadGen; the official development set has 10833 of 10570 questions.

Source of the numbers and of the rules for windows: language/bert/squad_QSL.py
and create_squad_data.py of mlcommons/inference. The schema of the questions:
https://rajpurkar.github.io/SQuAD-explorer, dev-v1.1.json.
"""

from collections.abc import Callable, Iterator, Sequence
import dataclasses
import functools
import json
import os
from typing import Any

import numpy as np
from transformers.models.bert import tokenization_bert_legacy

MAX_LENGTH = 384
_MAX_QUESTION = 64
_STRIDE = 128

# [CLS], [SEP] and [SEP].
_SPECIAL = 3
_SPECIAL_TOKENS = ('[CLS]', '[SEP]', '[UNK]')

# Of padding, whatever the vocabulary says of [PAD].
_PAD_ID = 0

Tokenize = Callable[[str], Sequence[str]]


# What separates words for the reference (read_squad_examples): no other blank
# does, so that a no-break space stays inside of a word.
_BLANKS = frozenset(' \t\r\n\u202f')

_URL = 'https://rajpurkar.github.io/SQuAD-explorer/dataset/dev-v1.1.json'


@dataclasses.dataclass(frozen=True)
class Question:
  """A question about a paragraph.

  Attributes:
    id: of the question in the data set.
    text: the question.
    words: of the paragraph, as `split_words` splits it.
    answers: texts that are right; empty where the file has none.
  """

  id: str
  text: str
  words: tuple[str, ...]
  answers: tuple[str, ...]


def read_questions(path: str) -> tuple[Question, ...]:
  """Reads a file in the order of its articles, paragraphs and questions.

  Raises:
    OSError: it cannot be read.
    ValueError: it is of another schema, or has no question.
  """
  try:
    with open(path, encoding='utf-8') as file:
      content = json.load(file)
  except FileNotFoundError as error:
    raise FileNotFoundError(
      f'no questions at {path}; fetch the official ones with:'
      f' curl -L -o {path} {_URL}'
    ) from error
  except ValueError as error:
    raise ValueError(f'{path} is not JSON: {error}') from error
  try:
    questions = tuple(_questions(content))
  except (KeyError, TypeError, AttributeError) as error:
    raise ValueError(
      f'{path} does not have the schema of SQuAD v1.1 ({error!r}); it needs'
      ' {"data": [{"paragraphs": [{"context", "qas": [{"id", "question",'
      ' "answers": [{"text"}]}]}]}]}, such as dev-v1.1.json has'
    ) from error
  if not questions:
    raise ValueError(f'{path} holds no question')
  return questions


def split_words(text: str) -> tuple[str, ...]:
  """Words of a paragraph, punctuation and all."""
  spaced = ''.join(' ' if letter in _BLANKS else letter for letter in text)
  # Not split(), which knows more blanks than the reference.
  return tuple(filter(None, spaced.split(' ')))


def _questions(content: Any) -> Iterator[Question]:
  for article in content['data']:
    for paragraph in article['paragraphs']:
      words = split_words(paragraph['context'])
      for entry in paragraph['qas']:
        yield Question(
          id=entry['id'],
          text=entry['question'],
          words=words,
          answers=tuple(answer['text'] for answer in entry.get('answers', ())),
        )


@dataclasses.dataclass(frozen=True)
class Feature:
  """One input of BERT, before padding.

  Attributes:
    question: index of the question it belongs to.
    tokens: word pieces.
    words: by token position: index of the paragraph's word that the token is
      a piece of; -1 outside of the paragraph.
    best_context: by token position: whether no other window shows more of the
      text around the token. An answer may only begin where it is true.
  """

  question: int
  tokens: tuple[str, ...]
  words: tuple[int, ...]
  best_context: tuple[bool, ...]


@dataclasses.dataclass(frozen=True)
class FeatureSet:
  """Features in memory. A feature's place is LoadGen's sample index.

  Attributes:
    questions: all questions that have one of the features.
    features: in the order of the questions and their windows.
    input_ids: int64 [N, 384], padded with 0.
    input_mask: int64 [N, 384], 1 for tokens, 0 for padding.
    segment_ids: int64 [N, 384], 0 for the question, 1 for the paragraph.
    lengths: tokens of each feature, int64 [N].
  """

  questions: tuple[Question, ...]
  features: tuple[Feature, ...]
  input_ids: np.ndarray
  input_mask: np.ndarray
  segment_ids: np.ndarray
  lengths: np.ndarray

  def __len__(self) -> int:
    return len(self.features)


def load(val_data: str, vocab_file: str, max_examples: int = 0) -> FeatureSet:
  """Reads questions and makes their features.

  Args:
    val_data: SQuAD v1.1 in JSON.
    vocab_file: vocab.txt of a BERT that knows lower case only.
    max_examples: features to take from the front; 0 takes all. What is called
      an example here is one in the reference's run.py as well: a sample.

  Raises:
    OSError, ValueError: one of the files cannot be used.
  """
  return convert(read_questions(val_data), tokenizer(vocab_file), max_examples)


def tokenizer(
  vocab_file: str,
) -> tokenization_bert_legacy.BertTokenizerLegacy:
  """The tokenizer that the reference used: the one written in Python.

  The newer one in Rust treats 760 rare characters in another way, by an older
  Unicode, and does not know the final form of the Greek sigma.

  Raises:
    OSError: there is no such file.
    ValueError: it is no vocabulary of BERT.
  """
  if not os.path.isfile(vocab_file):
    raise FileNotFoundError(
      f'no vocabulary at {vocab_file}; give the vocab.txt that comes with the'
      ' model: one word piece a line, 30522 of them for BERT-large uncased'
    )
  try:
    made = tokenization_bert_legacy.BertTokenizerLegacy(vocab_file)
  except UnicodeDecodeError as error:
    raise ValueError(f'{vocab_file} is no text in UTF-8: {error}') from error
  missing = [token for token in _SPECIAL_TOKENS if token not in made.vocab]
  if missing:
    raise ValueError(
      f'{vocab_file} has no line {" or ".join(missing)}: it is no vocabulary'
      ' of BERT; give the vocab.txt that comes with the model'
    )
  return made


def convert(
  questions: Sequence[Question],
  bert_tokenizer: tokenization_bert_legacy.BertTokenizerLegacy,
  max_examples: int = 0,
) -> FeatureSet:
  """Makes the features of questions.

  Args:
    questions: in order.
    bert_tokenizer: see `tokenizer`.
    max_examples: features to take from the front; 0 takes all.

  Raises:
    ValueError: there are fewer features than asked for, or none.
  """
  # Paragraphs have several questions, and most words come up again and again.
  tokenize = functools.cache(bert_tokenizer.tokenize)
  features: list[Feature] = []
  for index, question in enumerate(questions):
    features += windows(index, question, tokenize)
    if max_examples and len(features) >= max_examples:
      break
  if max_examples < 0 or len(features) < max(max_examples, 1):
    raise ValueError(
      f'{max_examples} examples asked of a set that has {len(features)}; take'
      f' 1 to {len(features)}, or 0 for all'
    )
  features = features[: max_examples or len(features)]
  # A question at the end may have no feature, but none lies between others.
  used = features[-1].question + 1 if max_examples else len(questions)
  return _padded(tuple(questions[:used]), features, bert_tokenizer)


def windows(
  index: int, question: Question, tokenize: Tokenize
) -> Iterator[Feature]:
  """The features of one question.

  Args:
    index: of the question.
    question: the question.
    tokenize: text -> word pieces.
  """
  asked = list(tokenize(question.text))[:_MAX_QUESTION]
  pieces = [
    (piece, word)
    for word, text in enumerate(question.words)
    for piece in tokenize(text)
  ]
  before = ['[CLS]', *asked, '[SEP]']
  spans = _spans(len(pieces), MAX_LENGTH - len(asked) - _SPECIAL)
  for number, span in enumerate(spans):
    shown = pieces[span.start : span.stop]
    yield Feature(
      index,
      (*before, *(piece for piece, _ in shown), '[SEP]'),
      (*(-1 for _ in before), *(word for _, word in shown), -1),
      (
        *(False for _ in before),
        *(_best_span(spans, position) == number for position in span),
        False,
      ),
    )


def _spans(count: int, room: int) -> list[range]:
  """Positions of the windows in a paragraph of `count` tokens."""
  spans: list[range] = []
  start = 0
  while start < count:
    spans.append(range(start, min(start + room, count)))
    if spans[-1].stop == count:
      break
    start += min(room, _STRIDE)
  return spans


def _best_span(spans: Sequence[range], position: int) -> int:
  """The window that shows most of the text around a token; the first of them.

  That is the smaller of what it shows to the left and to the right, and a
  little for the window's length (_check_is_max_context of the reference).
  """

  def score(number: int) -> float:
    span = spans[number]
    around = min(position - span.start, span.stop - 1 - position)
    return around + 0.01 * len(span)

  holding = [n for n, span in enumerate(spans) if position in span]
  return max(holding, key=score)


def _padded(
  questions: tuple[Question, ...],
  features: Sequence[Feature],
  bert_tokenizer: tokenization_bert_legacy.BertTokenizerLegacy,
) -> FeatureSet:
  shape = (len(features), MAX_LENGTH)
  input_ids = np.full(shape, _PAD_ID, np.int64)
  input_mask = np.zeros(shape, np.int64)
  segment_ids = np.zeros(shape, np.int64)
  vocab = bert_tokenizer.vocab
  unknown = vocab['[UNK]']
  for row, feature in enumerate(features):
    length = len(feature.tokens)
    paragraph = next(i for i, word in enumerate(feature.words) if word >= 0)
    input_ids[row, :length] = [vocab.get(t, unknown) for t in feature.tokens]
    input_mask[row, :length] = 1
    segment_ids[row, paragraph:length] = 1
  return FeatureSet(
    questions,
    tuple(features),
    input_ids,
    input_mask,
    segment_ids,
    input_mask.sum(1),
  )
