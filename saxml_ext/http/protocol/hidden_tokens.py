"""Replaces the special tokens in a request's texts while a template runs.

Before a template renders the texts, digits replace each special token in them.
Templates do not change digits. The processes that run templates of checkpoints
import this module, so it needs only the standard library.
"""

from collections.abc import Iterable
import re
import secrets
from typing import Any

# The usual special tokens count even if the template is not beside the files
# that name them. If a tokenizer does not have one, nothing changes.
_USUAL = (
  r'<[|\uff5c][^<>\s]{1,64}?[|\uff5c]>|</?s>|<(?:unk|pad|bos|eos|mask)>'
  r'|<(?:start|end)_of_turn>|\[/?INST\]'
)


class HiddenTokens:
  """The special tokens in the texts of one request."""

  def __init__(self, special: Iterable[str]):
    """Prepares for the special tokens of a template."""
    texts = sorted(map(re.escape, special), key=len, reverse=True)
    self._pattern = re.compile('|'.join([*texts, _USUAL]))
    # Clients cannot guess the digits.
    self._key = f'{secrets.randbelow(10**30):030}'
    self._numbers: dict[str, int] = {}

  def hide(self, value: Any) -> Any:
    """Returns a JSON value with digits in place of special tokens."""
    if isinstance(value, str):
      return self._pattern.sub(self._digits, value)
    if isinstance(value, list):
      return [self.hide(item) for item in value]
    if isinstance(value, dict):
      return {self.hide(k): self.hide(item) for k, item in value.items()}
    return value

  def _digits(self, match: re.Match[str]) -> str:
    number = self._numbers.setdefault(match[0], len(self._numbers))
    return f'{self._key}{number:07}'

  def parts(self, rendered: str) -> list[tuple[str, bool]]:
    """Returns the parts of a rendered text, each with True if it was hidden."""
    texts = list(self._numbers)
    return [
      (texts[int(part)], True) if i % 2 else (part, False)
      for i, part in enumerate(re.split(f'{self._key}([0-9]{{7}})', rendered))
    ]
