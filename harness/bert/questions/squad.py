"""Reads questions of SQuAD v1.1, as the BERT reference reads them.

Schema: https://rajpurkar.github.io/SQuAD-explorer, dev-v1.1.json.
"""

from collections.abc import Iterator
import dataclasses
import json
from typing import Any

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


def load(path: str) -> tuple[Question, ...]:
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
