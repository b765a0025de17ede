"""Summarizes articles with the templates that wrote them.

A person who has the generator's source could write this program. Every wording
of every fact becomes a regular expression. Every highlight whose facts were
found is filled in. No model is needed, so its ROUGE shows how much of the
bundled task is a puzzle of templates.
"""

from collections.abc import Iterator, Mapping, Sequence
import functools
import re

from bundled.news import corpus
from bundled.news import events
from bundled.news import lexicon
from bundled.news import writing

_PIECE = re.compile(r'\[([^\[\]]*)\]|\{(\w+)\}')
_NAMES = {
  'name': r'[A-Z]\w+ [A-Z]\w+',
  'rival': r'[A-Z]\w+ [A-Z]\w+',
  'speaker': r'[A-Z]\w+ [A-Z]\w+',
  'company': r'[A-Z]\w+ [A-Z]\w+',
  'target': r'[A-Z]\w+ [A-Z]\w+',
  'judge': r'[A-Z]\w+',
  'town': r'[A-Z]\w+',
  'rival_town': r'[A-Z]\w+',
  'day': r'[A-Z]\w+day',
}
# The key of the wordings of a quote. Other keys are the indices of facts.
_QUOTE = -1

Pattern = tuple[str, int, re.Pattern[str]]


def summarize(article: str, unseen: bool) -> str:
  """Returns the highlights of the recognized parts of an article, or ''.

  Args:
    article: The article.
    unseen: True to use the wordings that only the evaluation has.
  """
  return ' '.join(
    sentence
    for kind, facts, slots in _events(article, unseen)
    for sentence in _highlights(events.EVENTS[kind], facts, slots)
  )


def _events(
  article: str, unseen: bool
) -> Iterator[tuple[str, set[int], dict[str, str]]]:
  """Yields the type, the recognized facts and the slots of each event."""
  kind = ''
  facts: set[int] = set()
  slots: dict[str, str] = {}
  for sentence in writing.sentences(article):
    fitting = list(matches(sentence, unseen))
    # Two types may share a wording, so the type of the current event is
    # preferred.
    fitting.sort(key=lambda match: match[0] != kind)
    for match_kind, fact, values in fitting[:1]:
      if match_kind != kind and kind:
        yield kind, facts, slots
        facts, slots = set(), {}
      kind = match_kind
      facts.add(fact)
      slots.update(values)
  if kind:
    yield kind, facts, slots


def matches(
  sentence: str, unseen: bool
) -> Iterator[tuple[str, int, Mapping[str, str]]]:
  """Yields the event type, fact and slots of each wording that matches.

  The fact is an index in `events.Event.facts`, or -1 for a quote.
  """
  for kind, fact, pattern in _patterns(unseen):
    match = pattern.fullmatch(sentence)
    if match:
      yield kind, fact, match.groupdict()


@functools.cache
def _patterns(unseen: bool) -> Sequence[Pattern]:
  patterns = []
  for kind, event in events.EVENTS.items():
    for fact, wordings in enumerate(event.facts):
      wordings = [*wordings, event.unseen[fact]] if unseen else wordings
      patterns += [(kind, fact, pattern(text, event)) for text in wordings]
    quotes = [*lexicon.QUOTES.known, *(lexicon.QUOTES.unseen if unseen else ())]
    patterns += [(kind, _QUOTE, pattern(text, event)) for text in quotes]
  return patterns


def pattern(template: str, event: events.Event) -> re.Pattern[str]:
  """Returns a regular expression with a group per slot, named like the slot."""
  parts, end = [], 0
  for piece in _PIECE.finditer(template):
    parts.append(re.escape(template[end : piece.start()]))
    end = piece.end()
    if piece[1] is not None:
      words = '|'.join(map(re.escape, piece[1].split('|')))
      parts.append(f'(?:{words})')
    else:
      slot = piece[2].removesuffix('_cap')
      parts.append(f'(?P<{slot}>{_values(slot, event)})')
  parts.append(re.escape(template[end:]))
  return re.compile(''.join(parts))


def _values(slot: str, event: events.Event) -> str:
  """Returns the possible values of a slot as a regular expression."""
  if slot == 'role':
    return f'(?i:{re.escape(event.role)})'
  if slot == 'quote':
    return '|'.join(re.escape(quote) for quote, _ in event.quotes)
  if slot in event.pairs:
    longs = '|'.join(re.escape(long) for long, _ in event.pairs[slot])
    return f'(?i:{longs})'
  return _NAMES.get(slot, r'\d+')


def _highlights(
  event: events.Event, facts: set[int], slots: Mapping[str, str]
) -> Iterator[str]:
  """Yields every highlight whose facts are known, in its first wording."""
  values = {'role': event.role}
  for slot, value in slots.items():
    for long, short in (*event.pairs.get(slot, ()), *event.quotes):
      if long.lower() == value.lower():
        values['gist' if slot == 'quote' else f'{slot}_short'] = short
    values.setdefault(slot, value)
  for slot, value in list(values.items()):
    values[f'{slot}_cap'] = value[:1].upper() + value[1:]
    values[f'{slot}_low'] = value[:1].lower() + value[1:]
  wordings = [
    wording[0]
    for wording, needed in zip(event.highlights, event.told_by)
    if facts.issuperset(needed)
  ]
  if _QUOTE in facts:
    wordings.append(corpus.GIST_FORMS[0])
  for wording in wordings:
    text = _PIECE.sub(
      lambda piece: piece[1].split('|')[0] if piece[1] else piece[0], wording
    )
    yield text.format(**values)
