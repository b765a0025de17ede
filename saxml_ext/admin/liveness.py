"""When to take a model server for dead."""

# Seconds. A killed server refuses connections at once; refusing them for this
# long, it is not just being restarted by a quick hand.
_REFUSED_LIMIT = 0.5
# A server that merely does not answer may be compiling, or its machine may be
# short of everything. Other admin servers wait as long.
_SILENT_LIMIT = 25.0


class Liveness:
  """Judges a server by the status calls that failed since the last good one."""

  def __init__(self):
    self._failures = 0
    self._since = 0.0

  @property
  def failing(self) -> bool:
    """Whether the last call failed."""
    return self._failures > 0

  def silent_for(self, now: float) -> float:
    """Seconds since the first of the failed calls was made."""
    return now - self._since if self._failures else 0.0

  def succeeded(self) -> None:
    """The server answered."""
    self._failures = 0

  def failed(self, asked: float, now: float, refused: bool) -> bool:
    """A call failed.

    Args:
      asked: when it was made, monotonic seconds.
      now: when it failed.
      refused: whether there was no connection to be had, as opposed to no
        answer on one.

    Returns:
      Whether the server is to be taken for dead. A single failure is never
      enough: when this process was stopped for a while, every deadline has
      passed at once.
    """
    if not self._failures:
      self._since = asked
    self._failures += 1
    limit = _REFUSED_LIMIT if refused else _SILENT_LIMIT
    return self._failures > 1 and now - self._since >= limit
