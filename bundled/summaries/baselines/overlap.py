"""Measures how much of the evaluation's stories occurs in training stories."""

from collections.abc import Iterable, Iterator
import dataclasses
import functools
import re
from typing import Any

from bundled.news import corpus
from bundled.news import events
from bundled.news import lexicon
from bundled.news import names
from bundled.news import writing
from saxml_ext.evaluation import dataset

_WORD = re.compile(r'[A-Za-z]+')
_NUMBER = re.compile(r'\d+')
_GRAM = 8


@dataclasses.dataclass(frozen=True)
class Share:
  """The number of different items of one kind, in total and in training.

  Attributes:
    label: The kind of items.
    count: The number of items in the evaluation's stories.
    known: The number of these items that also occur in training stories.
  """

  label: str
  count: int
  known: int

  @property
  def line(self) -> str:
    percent = 100 * self.known / max(self.count, 1)
    return f'{self.label:<42}{self.count:8d}{self.known:8d}{percent:8.1f} %'


def measure(
  evaluation: Iterable[dataset.Article], training: Iterable[dataset.Article]
) -> list[Share]:
  """Counts the items that both sets share, for each kind."""
  items_by_label: dict[str, set[str]] = {}
  for story in evaluation:
    for label, items in _items(story).items():
      items_by_label.setdefault(label, set()).update(items)
  known: dict[str, set[str]] = {label: set() for label in items_by_label}
  for story in training:
    for label, items in _items(story).items():
      known[label] |= items & items_by_label[label]
  return [
    Share(label, len(items), len(known[label]))
    for label, items in items_by_label.items()
  ]


def names_anyone(text: str) -> bool:
  """Returns True if a text has a name of a person, a place or a company."""
  return any(map(_is_name, _WORD.findall(text)))


def _items(story: dataset.Article) -> dict[str, set[str]]:
  sentences = writing.sentences(story.input)
  summary = writing.sentences(story.output)
  return {
    'whole articles': {story.input},
    'whole highlights': {story.output},
    'sentences of articles': set(sentences),
    'the same, names and numbers left out': set(map(_pattern, sentences)),
    'sentences of highlights': set(summary),
    'the same without names and numbers': set(map(_pattern, summary)),
    f'{_GRAM}-grams of articles': _grams(story.input),
    f'{_GRAM}-grams of highlights': _grams(story.output),
    'words of names': {
      word for word in _WORD.findall(story.input) if _is_name(word)
    },
  }


def _grams(text: str) -> set[str]:
  """Returns all sequences of _GRAM words, or the text if it has fewer."""
  words = text.split()
  count = max(len(words) - _GRAM + 1, 1)
  return {' '.join(words[i : i + _GRAM]) for i in range(count)}


def _pattern(sentence: str) -> str:
  """Replaces every name and number in a sentence with a placeholder."""
  text = _WORD.sub(lambda m: '@' if _is_name(m[0]) else m[0], sentence)
  return _NUMBER.sub('#', text)


def _is_name(word: str) -> bool:
  return word[0].isupper() and word.lower() not in _template_words()


@functools.cache
def _template_words() -> frozenset[str]:
  """Returns all words of the templates.

  Other words with a capital letter are names.
  """
  given = [
    list(events.EVENTS.values()),
    vars(lexicon),
    corpus.GIST_FORMS,
    names.COMPANY_TAILS,
  ]
  return frozenset(
    word.lower() for text in _texts(given) for word in _WORD.findall(text)
  )


def _texts(value: Any) -> Iterator[str]:
  if isinstance(value, str):
    yield value
  elif dataclasses.is_dataclass(value):
    yield from _texts(vars(value))
  elif isinstance(value, dict):
    for name, inner in value.items():
      if not name.startswith('__'):
        yield from _texts(inner)
  elif isinstance(value, (list, tuple)):
    for inner in value:
      yield from _texts(inner)
