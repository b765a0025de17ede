"""Writes a vocabulary and a few questions for tests of BERT."""

import json
import os

# The word pieces by id. The single letters cover every word in lower case.
_LETTERS = 'abcdefghijklmnopqrstuvwxyz'
VOCAB = (
  '[PAD]',
  '[UNK]',
  '[CLS]',
  '[SEP]',
  '[MASK]',
  *'.,?()-',
  *_LETTERS,
  *(f'##{letter}' for letter in _LETTERS),
  'the',
  'cat',
  'sat',
  'on',
  'mat',
  'who',
  'where',
)

_CONTEXT = 'The cat sat on the mat.'


def write_vocab(directory: str) -> str:
  """Writes vocab.txt and returns its path."""
  path = os.path.join(directory, 'vocab.txt')
  with open(path, 'w', encoding='utf-8') as file:
    file.write('\n'.join(VOCAB) + '\n')
  return path


def write_questions(directory: str, sentences: int = 1) -> str:
  """Writes squad.json with two questions and returns its path.

  Args:
    directory: The directory to write to.
    sentences: The number of sentences in the first paragraph, with seven word
      pieces each. The second paragraph has one sentence.
  """
  path = os.path.join(directory, 'squad.json')
  paragraphs = [
    _paragraph(' '.join([_CONTEXT] * sentences), 'q0', 'Who sat?', 'The cat'),
    _paragraph(_CONTEXT, 'q1', 'Where?', 'the mat'),
  ]
  with open(path, 'w', encoding='utf-8') as file:
    json.dump({'version': '1.1', 'data': [{'paragraphs': paragraphs}]}, file)
  return path


def _paragraph(context: str, name: str, question: str, answer: str) -> dict:
  answers = [{'text': answer, 'answer_start': context.index(answer)}]
  entry = {'id': name, 'question': question, 'answers': answers}
  return {'context': context, 'qas': [entry]}
