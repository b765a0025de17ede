"""Shows generated texts on a terminal while they grow."""

from collections.abc import Sequence

from saxml_ext.client.cli import go_flags
from saxml_ext.client.models import lm
from saxml_ext.common import errors

# Home, erase the screen, erase what was scrolled away.
_CLEAR = '\x1b[H\x1b[2J\x1b[3J'


class BadPrefix(errors.Internal):
  """A message keeps more of a text than there is."""


def _numbers(values: Sequence[float]) -> str:
  return ', '.join(map(go_flags.shortest, values))


class Screen:
  """The texts of a stream, one per sample, and their scores."""

  def __init__(self):
    self._texts: list[bytes] = []
    # [sample][kind of score]
    self._totals: list[list[float]] = []
    self._last: list[list[float]] = []

  def __call__(self, last: bool, items: list[lm.StreamItem]) -> None:
    """Takes what `LM.GenerateStream` tells; raises BadPrefix."""
    if last:
      self._print_scores()
      return
    print(_CLEAR, end='', flush=True)
    for i, (text, prefix_len, scores) in enumerate(items):
      if i == len(self._texts):
        self._texts.append(b'')
        self._totals.append([])
        self._last.append([])
      self._grow(i, text, prefix_len)
      self._add_scores(i, scores)
      # A character may be cut in two; the next message completes it.
      print(self._texts[i].decode(errors='replace') + '\n', flush=True)

  def _grow(self, i: int, text: str, prefix_len: int) -> None:
    # On the wire, lengths count bytes of UTF-8.
    old = self._texts[i]
    if prefix_len > len(old):
      raise BadPrefix(
        f'PrefixLen {prefix_len} exceeds the current result '
        f'{old.decode(errors="replace")}'
      )
    self._texts[i] = old[:prefix_len] + text.encode()

  def _add_scores(self, i: int, scores: list[float]) -> None:
    totals = self._totals[i]
    totals.extend([0.0] * (len(scores) - len(totals)))
    for kind, score in enumerate(scores):
      totals[kind] += score
    self._last[i] = scores

  def _print_scores(self) -> None:
    kinds = max(map(len, self._totals), default=0)
    if kinds <= 1:
      print('Scores: ' + _numbers([sum(totals) for totals in self._totals]))
      return
    _print_table('Total Scores', self._totals, kinds)
    print()
    _print_table('Last Score', self._last, kinds)


def _print_table(
  title: str, table: Sequence[Sequence[float]], kinds: int
) -> None:
  """Prints a line for each kind of score; `table` is [sample][kind]."""
  for kind in range(kinds):
    values = [scores[kind] for scores in table if len(scores) > kind]
    print(f'{title}[{kind}]: {_numbers(values)}')
