"""A model of a running Sax cell, as LoadGen's system.

An answer comes whole, by Generate, unless streams are asked for: then it comes
by GenerateStream, and the time of its first token is known. Models stream that
are published with ENABLE_GENERATE_STREAM. An answer of beam search, which the
benchmark asks for, is told as far as all beams agree on it.
"""

from collections.abc import Callable, Collection, Sequence
from concurrent import futures
import functools

import numpy as np

from harness.data import summarization
from harness.loadgen import system
from harness.loadgen import target as target_lib
from harness.systems import streams
from saxml_ext.client import sax
from saxml_ext.client import sax_aio

# What the client returns for a prompt: (text, score), the best first.
Answers = list[tuple[str, float]]

# Sends one prompt to a model, and may call the other argument once, when the
# first token of the answer is there.
Generate = Callable[[str, Callable[[], None]], 'futures.Future[Answers]']


class CellSystem:
  """Sends prompts to the cell; answers come on the client's threads."""

  def __init__(
    self,
    generate: Generate,
    prompts: Sequence[str],
    end_ids: Collection[int] = (),
  ):
    """Creates it.

    Args:
      generate: sends prompts to the model.
      prompts: prompt by sample index, in the form that the model takes.
      end_ids: ids that end an answer; what LoadGen logs stops before the first.
    """
    self._generate = generate
    self._prompts = prompts
    self._end_ids = frozenset(end_ids)

  def answer(self, index: int, reply: system.Reply) -> None:
    future = self._generate(self._prompts[index], reply.first_token)
    future.add_done_callback(functools.partial(self._answered, reply))

  def close(self) -> None:
    """The client's connections end with the process."""

  def _answered(
    self, reply: system.Reply, future: 'futures.Future[Answers]'
  ) -> None:
    try:
      ids = token_ids(future.result(), self._end_ids)
    except Exception as error:  # Whatever it is ends the run, with its name.
      reply.failed(error)
      return
    reply.done(system.Answer(np.array(ids, np.int64), len(ids)))


def generator(
  target: target_lib.Target, timeout_secs: float, stream: bool = False
) -> Generate:
  """How to send prompts to a published model.

  Args:
    target: the model.
    timeout_secs: deadline of a request.
    stream: whether answers are streamed, so that their first tokens are told
      of; the model must do so, see above.
  """
  sax.SetRoot(target.sax_root)
  options = sax.ModelOptions()
  options.SetTimeout(timeout_secs)
  if stream:
    lm = sax_aio.Model(target.model_id).LM()
    return streams.Streams(
      lambda prompt: lm.GenerateStream(prompt, options)
    ).generate
  model = sax.Model(target.model_id).LM()
  return lambda prompt, on_first_token: model.GenerateAsync(prompt, options)


def token_ids(answers: Answers, end_ids: Collection[int]) -> tuple[int, ...]:
  """The best answer's token ids up to its end.

  Raises:
    ValueError: the model does not answer with token ids.
  """
  if not answers:
    raise ValueError('the model returned no answer')
  text = answers[0][0]
  try:
    ids = [int(word) for word in text.split(',')] if text else []
  except ValueError as error:
    raise ValueError(
      f'the model returned {text[:60]!r}, not comma-separated token ids;'
      ' publish it with tokenized serving params'
    ) from error
  return summarization.until_end(ids, end_ids)
