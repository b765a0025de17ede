"""Answers questions with the templates of the questions and their articles.

A person who has the generator's source could write this program. Every wording
of every question and fact becomes a regular expression, and no model is needed.
Its F1 therefore shows how much of the bundled task is a puzzle of templates.
"""

from collections.abc import Iterator, Sequence
import functools
import itertools
import re

from bundled.bert import questions
from bundled.bert import wordings
from bundled.news import events
from bundled.news import writing
from bundled.summaries.baselines import matcher as story_matcher


def answer(question: str, text: str, unseen: bool) -> str | None:
  """Returns the answer to a question, or None if no wording matches.

  Args:
    question: The question.
    text: The passage.
    unseen: True to use the wordings that only the evaluation has.
  """
  for kind, slot, suffix, pattern in _patterns(unseen):
    if not pattern.fullmatch(question):
      continue
    for sentence in writing.sentences(text):
      for fact_kind, _, values in story_matcher.matches(sentence, unseen):
        if fact_kind == kind and slot in values:
          return suffix.format(**values)
  return None


@functools.cache
def _patterns(unseen: bool) -> Sequence[tuple[str, str, str, re.Pattern[str]]]:
  """Returns the event type, slot, answer and expression of every wording."""
  return [
    (
      kind,
      one.slot,
      one.answer,
      story_matcher.pattern(text, events.EVENTS[kind]),
    )
    for kind, kind_wordings in wordings.WORDINGS.items()
    for one in kind_wordings
    for template in (*one.known, *(one.unseen if unseen else ()))
    for text in _expand(template)
  ]


def _expand(template: str) -> Iterator[str]:
  """Yields the template with every combination of its choices."""
  parts = writing.CHOICE.split(template)
  options = [
    part.split('|') if number % 2 else [part]
    for number, part in enumerate(parts)
  ]
  for chosen in itertools.product(*options):
    yield questions.tidy(''.join(chosen))
