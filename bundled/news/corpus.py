"""Writes news-like articles with highlights, for training and evaluation.

A story is a pure function of (split, index): the same pair gives the same text
on every machine. It has one to three events. The facts of an event appear in
any order, between sentences about other people, places and numbers. The
highlights state the facts of the article in other words.
"""

from collections.abc import Iterator

from bundled.news import events
from bundled.news import lexicon
from bundled.news import writing
from saxml_ext.evaluation import dataset

INSTRUCTION = 'Summarize the following news article:'

# The number of stories of 'eval' in harness/bundled/eval.json, from the first.
RECORDED = 512
# The number of stories of 'train' that the bundled models have read, at most.
TRAINED = 51_712

# The weights of the numbers of events in a story, and of the numbers of
# highlights of a single event. A summary has 10 to 160 tokens.
_EVENT_COUNTS = {1: 80, 2: 11, 3: 9}
_HIGHLIGHT_COUNTS = {1: 25, 2: 25, 3: 50}

# The probability that the speaker of an event is quoted.
_QUOTE_SHARE = 0.7

# The numbers of other sentences in a story, and the probability of a long
# story. A long story exceeds the 512 tokens that the serving params read.
_ASIDE_COUNTS = (0, 0, 1, 1, 2, 2, 3, 3, 4, 5, 6)
_LONG_SHARE = 0.045
_LONG_ASIDES = 24

GIST_FORMS = (
  '{role_cap} {speaker} says {gist}.',
  'The {role}, {speaker}, says {gist}.',
)


def write_story(split: str, index: int) -> dataset.Article:
  """Returns story number `index` of `split`, for example 'train' or 'eval'."""
  return _Writer(split, f'{split}/{index}').story()


def stories(
  split: str, count: int, start: int = 0
) -> Iterator[dataset.Article]:
  """Yields stories `start` to `start + count - 1` of `split`."""
  for index in range(start, start + count):
    yield write_story(split, index)


class _Writer(writing.Writer):
  """Writes one story."""

  _OPENER_SHARE = 0.7
  _FOLLOW_UP_SHARE = 0.5

  def story(self) -> dataset.Article:
    article: list[writing.Sentence] = []
    highlights: list[writing.Sentence] = []
    kinds = self.draw_kinds(_EVENT_COUNTS)
    for number, kind in enumerate(kinds):
      sentences, summary = self._event(events.EVENTS[kind], number, len(kinds))
      article += sentences
      highlights += summary
    asides = self.rng.choice(_ASIDE_COUNTS)
    if self.rng.random() < _LONG_SHARE:
      asides = _LONG_ASIDES
    for _ in range(asides):
      aside = self.aside()
      article.insert(self.rng.randint(0, len(article)), aside)
    text, summary_text = (
      ' '.join(one.text for one in part) for part in (article, highlights)
    )
    return dataset.Article(INSTRUCTION, text, summary_text)

  def _event(
    self, event: events.Event, number: int, count: int
  ) -> tuple[list[writing.Sentence], list[writing.Sentence]]:
    """Returns the sentences and highlights of event `number` of `count`."""
    rng = self.rng
    slots = self.slots(event)
    shown = list(range(len(event.highlights)))
    if count == 1:
      shown = sorted(rng.sample(shown, self.weighted(_HIGHLIGHT_COUNTS)))
    facts = sorted({fact for one in shown for fact in event.told_by[one]})
    templates = [
      self.word(event.facts[fact], [event.unseen[fact]]) for fact in facts
    ]
    summary = [rng.choice(event.highlights[one]) for one in shown]
    if len(shown) > 1 and rng.random() < _QUOTE_SHARE:
      templates.append(self.word(*lexicon.QUOTES))
      summary.append(rng.choice(GIST_FORMS))
    sentences = self.tell(number, templates, slots)
    return sentences, [self.fill(text, slots) for text in summary]
