"""Answers questions by simple rules, without a model.

The rules know the type of the right answer, which the question mostly shows: a
number with its unit, a weekday, a name, or other words.
"""

from collections.abc import Sequence
import random
import re

from bundled.bert import questions
from bundled.news import events
from bundled.news import lexicon
from bundled.news import writing

_WORD = re.compile(r'[A-Za-z]+')
_NUMBER = re.compile(
  r'\d+-\d+'
  r'|\d+(?: (?:percent|hours|weeks|years|people|kilometres an hour'
  r'|(?:thousand|million) dollars|thousand))?'
)
_DAY = re.compile('|'.join(lexicon.DAYS))
_NAME = re.compile(r'[A-Z]\w+(?: [A-Z]\w+)*')

_NUMBER_SLOTS = frozenset(
  slot for event in events.EVENTS.values() for slot in event.numbers
)
_NAME_SLOTS = frozenset(
  'name rival speaker judge company target town rival_town'.split()
)
# The minimum and the maximum number of words of a guessed phrase.
_PHRASE = (3, 8)
# These words carry no information about the topic of a question.
_COMMON = frozenset(
  'a an and at by did do does for from had has have how in is it many much of'
  ' on the to was were what when where which who whom whose why with'.split()
)


def random_of_type(
  question: questions.Question, text: str, rng: random.Random
) -> str:
  """Returns a random span of the right type."""
  return rng.choice(_find(question, writing.sentences(text), rng))


def first_of_type(
  question: questions.Question, text: str, rng: random.Random
) -> str:
  """Returns the first span of the right type."""
  return _find(question, writing.sentences(text), rng)[0]


def nearest_sentence(
  question: questions.Question, text: str, rng: random.Random
) -> str:
  """Returns the sentence that shares the most words with the question."""
  del rng
  return _by_nearness(question, text)[0]


def nearest_of_type(
  question: questions.Question, text: str, rng: random.Random
) -> str:
  """Returns the first span of the right type in the nearest such sentence."""
  return _find(question, _by_nearness(question, text), rng)[0]


def _by_nearness(question: questions.Question, text: str) -> list[str]:
  """Returns the sentences, ordered by the words shared with the question."""
  words = set(map(str.lower, _WORD.findall(question.text))) - _COMMON

  def shared(sentence: str) -> int:
    return len(words & set(map(str.lower, _WORD.findall(sentence))))

  return sorted(writing.sentences(text), key=shared, reverse=True)


def _find(
  question: questions.Question, sentences: Sequence[str], rng: random.Random
) -> list[str]:
  """Returns spans of the type of the answer, in the order of the sentences.

  Spans that occur in the question are left out, unless there are no others.
  """
  slot = question.topic.split('/')[1]
  pattern = None
  if slot in _NUMBER_SLOTS:
    pattern = _NUMBER
  elif slot == 'day':
    pattern = _DAY
  elif slot in _NAME_SLOTS:
    pattern = _NAME
  if pattern is None:
    return [_phrase(sentence, rng) for sentence in sentences]
  # The first word of a sentence has a capital letter even if it is not a name.
  spans = [
    match[0]
    for sentence in sentences
    for match in pattern.finditer(sentence)
    if match.start() or slot not in _NAME_SLOTS or ' ' in match[0]
  ]
  if slot in _NAME_SLOTS:
    dates = {*lexicon.DAYS, *lexicon.MONTHS}
    spans = [one for one in spans if dates.isdisjoint(one.split())]
  unnamed = [one for one in spans if one not in question.text]
  return unnamed or spans or [sentences[0]]


def _phrase(sentence: str, rng: random.Random) -> str:
  """Returns a random sequence of words of a sentence."""
  words = sentence.rstrip('.').split()
  size = min(len(words), rng.randint(*_PHRASE))
  start = rng.randint(0, len(words) - size)
  return ' '.join(words[start : start + size])
