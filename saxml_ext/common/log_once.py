"""Logs what is new, where most rounds of a loop have the same to say."""

from collections.abc import Callable


class LogOnce:
  """Passes a text on to the log unless it is the one that came before it."""

  def __init__(self, log: Callable[..., None]):
    """Logs nothing yet.

    Args:
      log: where texts go, for example `logging.error`; called with a format
        and its argument.
    """
    self._log = log
    self._last = ''

  def __call__(self, text: str) -> None:
    """Logs a text, or notes with '' that there is nothing to say any more."""
    if text and text != self._last:
      self._log('%s', text)
    self._last = text
