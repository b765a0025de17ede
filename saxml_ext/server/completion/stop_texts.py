"""Texts that end an answer, found while it grows."""

from collections.abc import Sequence


class Cutter:
  """Passes a text on up to the first stop text.

  What may be the beginning of a stop text is held back until more of the text
  shows whether it is. Of several stop texts the one that is complete first
  counts, of those that end together the longest: however the text is cut into
  parts, the result is the same.

  Attributes:
    found: the stop text that ended the text; '' as long as none has.
  """

  def __init__(self, stops: Sequence[str]):
    """`stops` are not empty texts."""
    self.found = ''
    self._stops = tuple(stops)
    self._held = ''

  def feed(self, text: str) -> str:
    """Takes the next part; returns what goes on, which ends before a stop."""
    if self.found:
      return ''
    text = self._held + text
    self._held = ''
    ends = [
      (start + len(stop), start, stop)
      for stop in self._stops
      if (start := text.find(stop)) >= 0
    ]
    if ends:
      _, start, self.found = min(ends)
      return text[:start]
    kept = len(text) - self._beginning(text)
    self._held = text[kept:]
    return text[:kept]

  def finish(self) -> str:
    """Returns what was held back: nothing follows."""
    held, self._held = self._held, ''
    return held

  def _beginning(self, text: str) -> int:
    """Length of the longest end of a text that a stop text begins with."""
    return max(
      (
        n
        for stop in self._stops
        for n in range(1, min(len(stop), len(text) + 1))
        if text.endswith(stop[:n])
      ),
      default=0,
    )
