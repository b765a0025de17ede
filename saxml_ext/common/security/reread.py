"""A small file that is read again and again, so that changes need no restart."""

from collections.abc import Callable
import logging
import threading
from typing import Generic, TypeVar

from saxml_ext.common import errors
from saxml_ext.common import storage

_logger = logging.getLogger(__name__)

_T = TypeVar('_T')
# Far more than any list of names, and nothing to a process.
_MAX_BYTES = 16 * 2**20


class Reread(Generic[_T]):
  """What a file says; the last good content while it is broken. Thread-safe.

  Attributes:
    path: of the file.
  """

  def __init__(
    self, path: str, parse: Callable[[bytes], _T], absent: _T, broken: _T
  ):
    """Reads nothing yet.

    Args:
      path: of a local file, or a URL.
      parse: makes the value of the file's bytes; raises InvalidArgument.
      absent: the value while there never was a file.
      broken: the value while none of its contents could be used.
    """
    self.path = path
    self._parse = parse
    self._absent = absent
    self._broken = broken
    self._lock = threading.Lock()
    self._data: bytes | None = None
    self._value = absent
    self._good = False
    self._trouble = ''
    self._closed = threading.Event()

  @property
  def value(self) -> _T:
    """What it says."""
    return self._value

  @property
  def trouble(self) -> str:
    """Why it could not be read or used the last time; '' if it could."""
    return self._trouble

  @property
  def good(self) -> bool:
    """Whether any of its contents could be used so far."""
    return self._good

  def refresh(self) -> None:
    """Reads it now."""
    with self._lock:
      try:
        data = storage.read_bytes(self.path)
        if self._good and not self._trouble and data == self._data:
          return
        if len(data) > _MAX_BYTES:
          raise errors.InvalidArgument(
            f'{len(data)} bytes are above the limit of {_MAX_BYTES}'
          )
        value = self._parse(data)
      except errors.NotFound:
        if self._good:
          self._fail('it is gone')
      except (errors.SaxError, OSError) as e:
        self._fail(str(e))
      else:
        if self._trouble:
          _logger.warning('%s is in order again', self.path)
        elif self._good:
          _logger.info('read %s again', self.path)
        self._data, self._value = data, value
        self._good, self._trouble = True, ''

  def follow(self, interval: float) -> None:
    """Refreshes it every so many seconds until `close`."""
    threading.Thread(
      target=self._follow, args=(interval,), name='reread', daemon=True
    ).start()

  def close(self) -> None:
    """Ends `follow`."""
    self._closed.set()

  def _follow(self, interval: float) -> None:
    while not self._closed.wait(interval):
      try:
        self.refresh()
      except Exception:  # pylint: disable=broad-exception-caught
        # This thread is all that ever notices that the file is good again.
        _logger.exception('%s cannot be read', self.path)

  def _fail(self, why: str) -> None:
    if not self._good:
      self._value = self._broken
    if why != self._trouble:
      kept = 'its last good content stays' if self._good else 'nobody is let in'
      _logger.error('%s cannot be used, %s: %s', self.path, kept, why)
    self._trouble = why
