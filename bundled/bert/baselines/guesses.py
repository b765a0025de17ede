"""Answers by simple rules that know no model.

The rules are told what type of answer is right, which a reader of the question
mostly knows: a number with its unit, a weekday, a name, or some other words.
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
# Words of a phrase that is guessed.
_PHRASE = (3, 8)
# Words that say nothing about what is asked.
_COMMON = frozenset(
  'a an and at by did do does for from had has have how in is it many much of'
  ' on the to was were what when where which who whom whose why with'.split()
)


def random_of_type(
  question: questions.Question, text: str, rng: random.Random
) -> str:
  """Returns any span of the right type."""
  return rng.choice(_find(question, writing.sentences(text), rng))


def first_of_type(
  question: questions.Question, text: str, rng: random.Random
) -> str:
  """Returns the first span of the right type."""
  return _find(question, writing.sentences(text), rng)[0]


def nearest_sentence(
  question: questions.Question, text: str, rng: random.Random
) -> str:
  """Returns the sentence that shares most words with the question."""
  del rng
  return _by_nearness(question, text)[0]


def nearest_of_type(
  question: questions.Question, text: str, rng: random.Random
) -> str:
  """Returns the first span of the right type in the nearest sentence with one."""
  return _find(question, _by_nearness(question, text), rng)[0]


def _by_nearness(question: questions.Question, text: str) -> list[str]:
  """Sentences, those that share most words with the question first."""
  asked = set(map(str.lower, _WORD.findall(question.text))) - _COMMON

  def shared(sentence: str) -> int:
    return len(asked & set(map(str.lower, _WORD.findall(sentence))))

  return sorted(writing.sentences(text), key=shared, reverse=True)


def _find(
  question: questions.Question, sentences: Sequence[str], rng: random.Random
) -> list[str]:
  """Spans of the type of the question's answer, in the sentences' order.

  What the question names itself is not among them, unless nothing else is.
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
  # The first word of a sentence has a capital letter, name or not.
  found = [
    match[0]
    for sentence in sentences
    for match in pattern.finditer(sentence)
    if match.start() or slot not in _NAME_SLOTS or ' ' in match[0]
  ]
  if slot in _NAME_SLOTS:
    dates = {*lexicon.DAYS, *lexicon.MONTHS}
    found = [one for one in found if dates.isdisjoint(one.split())]
  others = [one for one in found if one not in question.text]
  return others or found or [sentences[0]]


def _phrase(sentence: str, rng: random.Random) -> str:
  """Returns consecutive words of a sentence."""
  words = sentence.rstrip('.').split()
  size = min(len(words), rng.randint(*_PHRASE))
  start = rng.randint(0, len(words) - size)
  return ' '.join(words[start : start + size])
