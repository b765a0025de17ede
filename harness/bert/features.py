"""Converts questions to the inputs of BERT, as the MLPerf reference does.

A paragraph that is too long for one input is cut into overlapping windows. Each
window becomes a feature: [CLS] question [SEP] window [SEP]. A feature is one
sample of LoadGen. The official development set has 10570 questions, which
become 10833 features.

Source of the numbers and the rules for windows: language/bert/squad_QSL.py and
create_squad_data.py of mlcommons/inference. The schema of the questions:
https://rajpurkar.github.io/SQuAD-explorer, dev-v1.1.json.
"""

from collections.abc import Callable, Iterator, Sequence
import dataclasses
import functools
import os
from typing import Any

import numpy as np
from transformers.models.bert import tokenization_bert_legacy

from saxml_ext.common import files

MAX_LENGTH = 384
_MAX_QUESTION = 64
_STRIDE = 128

# The number of special tokens in a feature: [CLS], [SEP] and [SEP].
_SPECIAL = 3
_SPECIAL_TOKENS = ('[CLS]', '[SEP]', '[UNK]')

# The id of padding. The id of [PAD] in the vocabulary is not used.
_PAD_ID = 0

Tokenize = Callable[[str], Sequence[str]]


# The characters that separate words in the reference (read_squad_examples).
# Other blanks do not, so a no-break space stays inside a word.
_BLANKS = frozenset(' \t\r\n\u202f')

_URL = 'https://rajpurkar.github.io/SQuAD-explorer/dataset/dev-v1.1.json'


@dataclasses.dataclass(frozen=True)
class Question:
  """A question about a paragraph.

  Attributes:
    id: The id of the question in the data set.
    text: The text of the question.
    words: The words of the paragraph, as `split_words` returns them.
    answers: The correct answers; empty if the file has none.
  """

  id: str
  text: str
  words: tuple[str, ...]
  answers: tuple[str, ...]


def read_questions(path: str) -> tuple[Question, ...]:
  """Reads a file in the order of its articles, paragraphs and questions.

  Raises:
    OSError: The file cannot be read.
    ValueError: The file has another schema, or has no question.
  """
  try:
    content = files.read_json(path)
  except FileNotFoundError as error:
    raise FileNotFoundError(
      f'{path} does not exist. Fetch the official questions with: curl -L -o'
      f' {path} {_URL}'
    ) from error
  try:
    questions = tuple(_questions(content))
  except (KeyError, TypeError, AttributeError) as error:
    raise ValueError(
      f'{path} does not have the schema of SQuAD v1.1 ({error!r}). It needs'
      ' {"data": [{"paragraphs": [{"context", "qas": [{"id", "question",'
      ' "answers": [{"text"}]}]}]}]}, like dev-v1.1.json.'
    ) from error
  if not questions:
    raise ValueError(f'{path} has no questions.')
  ids: set[str] = set()
  for question in questions:
    texts = [question.id, question.text, *question.answers]
    if not all(isinstance(text, str) and text.strip() for text in texts):
      raise ValueError(f'{path}: {texts} has a member that is no text.')
    if question.id in ids:
      raise ValueError(
        f'{path} has two questions with the id {question.id!r}. The answer to'
        ' one of them would count for both. Change one of the ids.'
      )
    ids.add(question.id)
  return questions


def split_words(text: str) -> tuple[str, ...]:
  """Returns the words of a paragraph, with punctuation."""
  spaced = ''.join(' ' if letter in _BLANKS else letter for letter in text)
  # split() without arguments separates at more blanks than the reference.
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
    question: The index of the question.
    tokens: The word pieces.
    words: The index of the paragraph's word that a token belongs to, by token
      position; -1 outside of the paragraph.
    best_context: True for a token if no other window has more text around it,
      by token position. An answer may begin only at such a token.
  """

  question: int
  tokens: tuple[str, ...]
  words: tuple[int, ...]
  best_context: tuple[bool, ...]


@dataclasses.dataclass(frozen=True)
class FeatureSet:
  """Features in memory. The position of a feature is LoadGen's sample index.

  Attributes:
    questions: The questions that have at least one of the features.
    features: The features in the order of the questions and their windows.
    input_ids: The token ids, int64 [N, 384], padded with 0.
    input_mask: The mask, int64 [N, 384], 1 for tokens and 0 for padding.
    segment_ids: The segments, int64 [N, 384], 0 for the question and 1 for the
      paragraph.
    lengths: The number of tokens of each feature, int64 [N].
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
    val_data: The questions, SQuAD v1.1 in JSON.
    vocab_file: The vocab.txt of a BERT for lower case only.
    max_examples: The number of features to take from the front; 0: all. The
      reference's run.py also calls a sample an example.

  Raises:
    OSError, ValueError: A file cannot be used.
  """
  return convert(read_questions(val_data), tokenizer(vocab_file), max_examples)


def tokenizer(vocab_file: str) -> tokenization_bert_legacy.BertTokenizerLegacy:
  """Returns the tokenizer of the reference, which is written in Python.

  The newer tokenizer in Rust differs in 760 rare characters, because it uses an
  older Unicode. It also does not support the final form of the Greek sigma.

  Raises:
    OSError: The file does not exist.
    ValueError: The file is not a vocabulary of BERT.
  """
  if not os.path.isfile(vocab_file):
    raise FileNotFoundError(
      f"{vocab_file} does not exist. Pass the model's vocab.txt, which has one"
      ' word piece per line (30522 for BERT-large uncased).'
    )
  try:
    made = tokenization_bert_legacy.BertTokenizerLegacy(vocab_file)
  except UnicodeDecodeError as error:
    raise ValueError(f'{vocab_file} is not UTF-8 text: {error}') from error
  missing = [token for token in _SPECIAL_TOKENS if token not in made.vocab]
  if missing:
    raise ValueError(
      f'{vocab_file} is not a vocabulary of BERT, because it has no line'
      f' {" or ".join(missing)}. Pass the vocab.txt of the model.'
    )
  return made


def convert(
  questions: Sequence[Question],
  bert_tokenizer: tokenization_bert_legacy.BertTokenizerLegacy,
  max_examples: int = 0,
) -> FeatureSet:
  """Makes the features of questions.

  Args:
    questions: The questions in order.
    bert_tokenizer: The tokenizer that `tokenizer` returned.
    max_examples: The number of features to take from the front; 0: all.

  Raises:
    ValueError: The number of features is 0 or lower than requested.
  """
  # Several questions share a paragraph, and most words occur often.
  tokenize = functools.cache(bert_tokenizer.tokenize)
  features: list[Feature] = []
  for index, question in enumerate(questions):
    features += windows(index, question, tokenize)
    if max_examples and len(features) >= max_examples:
      break
  if max_examples < 0 or len(features) < max(max_examples, 1):
    raise ValueError(
      f'{max_examples} examples were requested, but the set has'
      f' {len(features)}. Pass 1 to {len(features)}, or 0 for all.'
    )
  features = features[: max_examples or len(features)]
  # With a limit, the questions after the last feature are left out.
  used = features[-1].question + 1 if max_examples else len(questions)
  return _padded(tuple(questions[:used]), features, bert_tokenizer)


def windows(
  index: int, question: Question, tokenize: Tokenize
) -> Iterator[Feature]:
  """Yields the features of one question.

  Args:
    index: The index of the question.
    question: The question.
    tokenize: The function that splits a text into word pieces.
  """
  question_pieces = list(tokenize(question.text))[:_MAX_QUESTION]
  pieces = [
    (piece, word)
    for word, text in enumerate(question.words)
    for piece in tokenize(text)
  ]
  before = ['[CLS]', *question_pieces, '[SEP]']
  spans = _spans(len(pieces), MAX_LENGTH - len(question_pieces) - _SPECIAL)
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
  """Returns the windows of a paragraph of `count` tokens, by position."""
  spans: list[range] = []
  start = 0
  while start < count:
    spans.append(range(start, min(start + room, count)))
    if spans[-1].stop == count:
      break
    start += min(room, _STRIDE)
  return spans


def _best_span(spans: Sequence[range], position: int) -> int:
  """Returns the first of the windows that have the most text around a token.

  The score is the smaller number of tokens on either side, plus a small share
  of the window's length (_check_is_max_context of the reference).
  """

  def score(number: int) -> float:
    span = spans[number]
    around = min(position - span.start, span.stop - 1 - position)
    return around + 0.01 * len(span)

  containing = [n for n, span in enumerate(spans) if position in span]
  return max(containing, key=score)


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
