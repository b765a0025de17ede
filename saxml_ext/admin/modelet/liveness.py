"""When to take a model server for dead."""

from saxml_ext.admin.modelet import port_check as reach_lib

# Seconds. A killed server refuses connections at once; refusing them for this
# long, it is not just being restarted by a quick hand.
_REFUSED_LIMIT = 0.5
# A machine that takes no connections at all, while a call is not answered
# either.
_NO_ANSWER_LIMIT = 0.6
# A server that merely does not answer may be compiling, or its machine may be
# short of everything. Other admin servers wait as long.
_SILENT_LIMIT = 25.0
_LIMITS = {
  reach_lib.Reach.REFUSED: _REFUSED_LIMIT,
  reach_lib.Reach.NO_ANSWER: _NO_ANSWER_LIMIT,
  reach_lib.Reach.TAKEN: _SILENT_LIMIT,
}


class Liveness:
  """Judges a server by the status calls that failed since the last good one."""

  def __init__(self):
    self._failures = 0
    self._since = 0.0
    self._reach: reach_lib.Reach | None = None
    self._reach_since = 0.0
    self._same = 0

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
    self._reach = None

  def failed(self, asked: float, now: float, reach: reach_lib.Reach) -> bool:
    """A call failed, or is not answered yet.

    Args:
      asked: when it was made, monotonic seconds.
      now: when it failed.
      reach: whether the server can be reached at all.

    Returns:
      Whether the server is to be taken for dead. A single failure is never
      enough: when this process was stopped for a while, every deadline has
      passed at once.
    """
    if not self._failures:
      self._since = asked
    self._failures += 1
    # What followed on something else is counted from its first time.
    if reach is not self._reach:
      self._reach, self._reach_since, self._same = reach, now, 0
    self._same += 1
    if reach is reach_lib.Reach.TAKEN:
      return self._failures > 1 and now - self._since >= _LIMITS[reach]
    return self._same > 1 and now - self._reach_since >= _LIMITS[reach]
