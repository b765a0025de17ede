"""Shows generated texts on a terminal while they grow."""

from collections.abc import Sequence

from saxml_ext.client.cli import go_flags
from saxml_ext.client.models import lm
from saxml_ext.common import errors

# Moves the cursor home, then erases the screen and the scrollback buffer.
_CLEAR = '\x1b[H\x1b[2J\x1b[3J'


class BadPrefix(errors.Internal):
  """An error: a message keeps a longer prefix than the text has."""


def _numbers(values: Sequence[float]) -> str:
  return ', '.join(map(go_flags.shortest, values))


class Screen:
  """A terminal view of a stream's texts and scores, one text per sample."""

  def __init__(self):
    self._texts: list[bytes] = []
    # The index is [sample][kind of score].
    self._totals: list[list[float]] = []
    self._last: list[list[float]] = []

  def __call__(self, last: bool, items: list[lm.StreamItem]) -> None:
    """Shows one message of `LM.GenerateStream`; raises BadPrefix."""
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
      # A message may end inside a character; the next one completes it.
      print(self._texts[i].decode(errors='replace') + '\n', flush=True)

  def _grow(self, i: int, text: str, prefix_len: int) -> None:
    # Prefix lengths of the protocol count UTF-8 bytes.
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
