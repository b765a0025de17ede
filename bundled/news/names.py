"""Invents names of people, places and companies, separately for each split.

A name is a sequence of syllables. The checksum of a word decides which split
may use it. One word of eight belongs to the evaluation and never occurs in a
training story. If a model answers with the names of an evaluation article, it
has therefore copied them and not remembered them.
"""

import random
import re
import zlib

_ONSETS = """
B Br C Ch Cl D Dr F Fr G Gr H J K Kr L M N P Pr R S Sh Sk St T Th Tr V W Y Z
""".split()
_VOWELS = ['a', 'e', 'i', 'o', 'u', 'ai', 'ea', 'ou']
_CODAS = ['', 'b', 'd', 'l', 'll', 'lm', 'm', 'n', 'nd', 'r', 'rn', 'v', 'x']

_FIRST_ENDINGS = 'a an ea el en ia in is o us'.split()
_LAST_ENDINGS = 'ard berg er ez ley man ova ski son well'.split()
_TOWN_ENDINGS = 'bury dale ford ham mouth port stead ton ville wick'.split()
_COMPANY_ENDINGS = 'aco ara eon ex ico ium ora yne'.split()
COMPANY_TAILS = """
Foods Motors Energy Airways Textiles Logistics Media Pharma Steel Systems
Telecom Chemicals Robotics Bank
""".split()

# These syllables would form an ugly word in some language.
_REFUSED = re.compile(
  'anal|ass|coon|cum|dyk|fag|hoa|kik|nazi|nig|pis|rap|sex|shi|slu|tit|who|wan',
  re.IGNORECASE,
)

_HELD_OUT_ONE_IN = 8


def is_held_out(word: str) -> bool:
  """Returns True if only the evaluation may use the word as a name."""
  return zlib.crc32(word.encode()) % _HELD_OUT_ONE_IN == 0


def person(rng: random.Random, held_out: bool) -> str:
  """Draws a first and a last name."""
  first = _word(rng, _FIRST_ENDINGS, held_out)
  return f'{first} {last(rng, held_out)}'


def last(rng: random.Random, held_out: bool) -> str:
  """Draws a last name."""
  return _word(rng, _LAST_ENDINGS, held_out)


def town(rng: random.Random, held_out: bool) -> str:
  """Draws the name of a place, one word."""
  return _word(rng, _TOWN_ENDINGS, held_out)


def company(rng: random.Random, held_out: bool) -> str:
  """Draws the name of a company: an invented word and its line of business."""
  head = _word(rng, _COMPANY_ENDINGS, held_out)
  return f'{head} {rng.choice(COMPANY_TAILS)}'


def _word(rng: random.Random, endings: list[str], held_out: bool) -> str:
  while True:
    word = ''.join(
      rng.choice(parts) for parts in (_ONSETS, _VOWELS, _CODAS, endings)
    )
    if is_held_out(word) == held_out and not _REFUSED.search(word):
      return word
