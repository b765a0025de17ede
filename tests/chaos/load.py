"""Sends requests at a constant rate; each must be answered exactly once."""

from concurrent import futures
import dataclasses
import pathlib
import threading
import time

from saxml_ext.client import sax
from saxml_ext.common import errors

_TIMEOUT_SECS = 60.0


@dataclasses.dataclass
class Counts:
  """The outcomes of requests.

  Attributes:
    requests: The number of requests sent, at `rate` per second.
    lost: The reasons of failed requests, or their wrong answers.
    completed: The number of different prompts that engines have answered.
    twice: The number of requests that two engines completed, because the first
      one was killed before its answer was sent.
    longest_secs: The duration of the longest request.
  """

  rate: float = 0.0
  requests: int = 0
  lost: list[str] = dataclasses.field(default_factory=list)
  completed: int = 0
  twice: int = 0
  longest_secs: float = 0.0

  def count(self, completed: pathlib.Path) -> None:
    """Counts the prompts in the file of answered prompts of instant engines."""
    lines = completed.read_text().splitlines()
    self.completed = len(set(lines))
    self.twice = len(lines) - self.completed


class Load:
  """Sends requests to instant engines until the context ends."""

  def __init__(self, root: str, model_id: str, counts: Counts):
    """Stores the arguments.

    Args:
      root: The root directory of the cell.
      model_id: The model to call; it answers a prompt with the prompt.
      counts: The object that has the rate and receives the outcomes.
    """
    sax.SetRoot(root)
    self._lm = sax.Model(model_id).LM()
    self._counts = counts
    self._ended = threading.Event()
    self._answers: list[futures.Future] = []
    self._lock = threading.Lock()
    self._thread = threading.Thread(target=self._send)

  def __enter__(self) -> 'Load':
    self._lm.Generate('1,2,3')  # This request does not count.
    self._thread.start()
    return self

  def __exit__(self, *unused) -> None:
    self._ended.set()
    self._thread.join()
    futures.wait(self._answers, 2 * _TIMEOUT_SECS)
    answered = sum(future.done() for future in self._answers)
    if answered < len(self._answers):
      self._counts.lost.append(f'{len(self._answers) - answered} hang')

  def _send(self) -> None:
    options = sax.ModelOptions(_TIMEOUT_SECS)
    due = time.monotonic()
    while not self._ended.wait(max(0.0, due - time.monotonic())):
      due += 1 / self._counts.rate
      number = self._counts.requests
      prompt = f'{number % 50_000},{number // 50_000},7'
      begin = time.monotonic()
      future = self._lm.GenerateAsync(prompt, options)
      self._answers.append(future)
      self._counts.requests += 1
      future.add_done_callback(
        lambda f, prompt=prompt, begin=begin: self._note(f, prompt, begin)
      )

  def _note(self, future: futures.Future, prompt: str, begin: float) -> None:
    secs, wrong = time.monotonic() - begin, ''
    try:
      (text, _), *_ = future.result()
      if text != prompt:
        wrong = f'{prompt} was answered {text}'
    except errors.SaxError as e:
      wrong = f'{e.code.name}: {e.message}'
    with self._lock:
      self._counts.longest_secs = max(self._counts.longest_secs, secs)
      if wrong:
        self._counts.lost.append(wrong)
