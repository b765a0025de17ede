"""Whether a model that has no replica right now will soon have one."""

from saxml_ext.client.transport import model_detail

# So long a model may be without a server before that counts as its state and
# not as a passing one: servers join a new admin server within 3 s.
_NO_SERVER_SECONDS = 5.0


class Outlook:
  """What to expect for one model, by what its admin server lists."""

  def __init__(self):
    self._without_server_since: float | None = None

  def judge(self, detail: model_detail.ModelDetail, now: float) -> str:
    """Tells why waiting for a replica is of no use; "" if it may help.

    It may help while a replica is loading, or while the server of one is
    restarting. It does not if loading failed wherever it was tried, if no
    replica is wanted, or if no server has taken the model for some time.

    Args:
      detail: as listed now.
      now: monotonic seconds.
    """
    if not detail.max_replicas:
      return (
        'it is published with 0 replicas: ask for some with `saxutil update '
        f'-replicas=1 {detail.model_id}`'
      )
    held = [r for r in detail.replicas if r.address]
    if any(r.status != model_detail.FAILED for r in held):
      self._without_server_since = None
      return ''
    if held:
      return _text(detail)
    if not detail.replicas:  # A stock admin server does not tell.
      return ''
    if self._without_server_since is None:
      self._without_server_since = now
    if now - self._without_server_since < _NO_SERVER_SECONDS:
      return ''
    return _text(detail)


def _text(detail: model_detail.ModelDetail) -> str:
  return '; '.join(map(str, detail.replicas))
