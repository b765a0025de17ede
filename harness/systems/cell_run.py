"""Runs LoadGen once against a model of a running Sax cell.

By default, Generate returns the whole answer at once. With --stream, and where
LoadGen measures first tokens, GenerateStream returns it in parts. Only models that are published with ENABLE_GENERATE_STREAM can stream. A beam
search, which the benchmark requires, streams the part of the answer on which
all beams agree.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from concurrent import futures
import contextlib
import functools
import threading

import grpc

from harness.benchmarks import all as benchmarks
from harness.benchmarks import benchmark as benchmark_lib
from harness.data import summarization
from harness.loadgen import run as run_lib
from harness.loadgen import runner
from harness.loadgen import settings
from harness.loadgen import system
from harness.network import client as network_client
from harness.systems import launch
from saxml_ext.client import sax
from saxml_ext.client import sax_aio
from saxml_ext.common import grpc_util
from saxml_ext.common import program
from saxml_ext.protobuf import common_pb2
from saxml_ext.protobuf import modelet_pb2
from saxml_ext.protobuf import modelet_pb2_grpc

_ANSWER_SECS = 60.0

# The silence limit ends a run that hangs. The deadline only tells the server to
# drop a request whose client is gone. A request may wait in the server's queue
# for most of its time, so the deadline is much longer.
_DEADLINE_FACTOR = 20

# One sample's part of a message, as in `saxml_ext.client.sax_aio`: the new
# text, the number of bytes of the earlier text to keep before it, and the
# scores of the new text.
_Item = tuple[str, int, list[float]]


# The client's result for a prompt: (text, score) pairs, the best first.
Answers = list[tuple[str, float]]


class Streams:
  """Sends requests whose answers grow. It is thread-safe."""

  def __init__(
    self, open_stream: Callable[[str], AsyncGenerator[list[_Item], None]]
  ):
    """Starts the thread, which ends with the process.

    Args:
      open_stream: The function that sends a prompt and yields messages, which
        have an item per sample. It is called on the event loop.
    """
    self._open = open_stream
    self._loop = asyncio.new_event_loop()
    threading.Thread(
      target=self._loop.run_forever, name='streams', daemon=True
    ).start()

  def generate(
    self,
    prompt: str,
    on_first_token: Callable[[int], None],
    on_done: Callable[['futures.Future[Answers]'], None],
  ) -> None:
    """Sends a prompt. The thread of the streams calls both functions.

    Args:
      prompt: The prompt in the format of the model.
      on_first_token: The function that is called once with the first token, at
        the first message that has text of the first sample.
      on_done: The function that gets a future of one (text, score) pair per
        sample, in the server's order, as a model's `Generate` returns them.
    """
    future: futures.Future[Answers] = futures.Future()
    # A callback that is added to a future that is already done would run on the
    # caller's thread.
    future.add_done_callback(on_done)
    asyncio.run_coroutine_threadsafe(
      self._answer(prompt, on_first_token, future), self._loop
    )

  async def _answer(
    self,
    prompt: str,
    on_first_token: Callable[[int], None],
    future: 'futures.Future[Answers]',
  ) -> None:
    try:
      answers = await self._read(prompt, on_first_token)
    except Exception as error:  # Any error ends the run.
      future.set_exception(error)
      return
    future.set_result(answers)

  async def _read(
    self, prompt: str, on_first_token: Callable[[int], None]
  ) -> list[tuple[str, float]]:
    texts: list[bytes] = []
    scores: list[float] = []
    reported = False
    async with contextlib.aclosing(self._open(prompt)) as messages:
      async for items in messages:
        if not reported and items and items[0][0]:
          reported = True
          on_first_token(_ids(items[0][0].partition(',')[0])[0])
        _grow(texts, scores, items)
    return [(t.decode(), score) for t, score in zip(texts, scores, strict=True)]


def _grow(
  texts: list[bytes], scores: list[float], items: Sequence[_Item]
) -> None:
  """Adds a message to the UTF-8 text and the score of each sample.

  A message may have more samples than the one before. A beam search sends only
  its best answer until the end.

  Raises:
    ValueError: The message has fewer samples than the one before.
  """
  more = len(items) - len(texts)
  texts += [b''] * more
  scores += [0.0] * more
  if more < 0:
    raise ValueError(
      f'a stream of {len(texts)} samples sent a message of {len(items)}. The'
      ' server is not a Sax server, or it failed'
    )
  for i, (text, keep, new) in enumerate(items):
    texts[i] = texts[i][:keep] + text.encode()
    scores[i] += new[0]  # The first score is log p.


# A function that sends a prompt to a model. It may call its second argument
# once, when the first token of the answer arrives. It calls the third one with
# the answers.
Generate = Callable[
  [str, Callable[[int], None], Callable[['futures.Future[Answers]'], None]],
  None,
]


class CellSystem:
  """Sends prompts to the cell. Answers arrive on the client's threads."""

  def __init__(
    self,
    generate: Generate,
    prompts: Sequence[str],
    end_ids: Collection[int],
    benchmark: benchmark_lib.Benchmark,
  ):
    """Stores the prompts and the function that sends them.

    Args:
      generate: The function that sends a prompt to the model.
      prompts: The prompts by sample index, in the format of the model.
      end_ids: The ids that end an answer.
      benchmark: The benchmark, which decides what is logged.
    """
    self._generate = generate
    self._prompts = prompts
    self._end_ids = frozenset(end_ids)
    self._benchmark = benchmark

  def answer(self, index: int, reply: system.Reply) -> None:
    self._generate(
      self._prompts[index],
      reply.first_token,
      functools.partial(self._answered, reply),
    )

  def close(self) -> None:
    """Does nothing, because the client's connections end with the process."""

  def _answered(
    self, reply: system.Reply, future: 'futures.Future[Answers]'
  ) -> None:
    try:
      ids = token_ids(future.result())
    except Exception as error:  # Any error ends the run.
      reply.failed(error)
      return
    data = summarization.logged(ids, self._end_ids, self._benchmark)
    reply.done(system.Answer(data, len(data)))


def generator(
  model_id: str, sax_root: str, timeout_secs: float, stream: bool = False
) -> Generate:
  """Returns a function that sends prompts to a published model.

  Args:
    model_id: The id of the model.
    sax_root: The root directory of the cell's files; '': $SAX_ROOT.
    timeout_secs: The deadline of a request.
    stream: True if answers are streamed, so that the times of their first
      tokens are known. The model must be published with ENABLE_GENERATE_STREAM.
  """
  if sax_root:
    sax.SetRoot(sax_root)
  options = sax.ModelOptions()
  options.SetTimeout(timeout_secs)
  if stream:
    lm = sax_aio.Model(model_id).LM()
    return Streams(lambda prompt: lm.GenerateStream(prompt, options)).generate
  model = sax.Model(model_id).LM()
  return lambda prompt, on_first_token, on_done: model.GenerateAsync(
    prompt, options
  ).add_done_callback(on_done)


def token_ids(answers: Answers) -> list[int]:
  """Returns the best answer's token ids.

  Raises:
    ValueError: The answer of the model does not consist of token ids.
  """
  if not answers:
    raise ValueError('the model returned no answer')
  return _ids(answers[0][0])


def _ids(text: str) -> list[int]:
  try:
    return [int(word) for word in text.split(',')] if text else []
  except ValueError as error:
    raise ValueError(
      f'the model returned {text[:60]!r} instead of comma-separated token ids.'
      ' Publish it with tokenized serving params'
    ) from error


def network_name(model_id: str, sax_root: str) -> str:
  """Returns LoadGen's name for a published model and its servers.

  The admin server reports the model, and each model server confirms that it has
  loaded the model.

  Args:
    model_id: The id of the model.
    sax_root: The root directory of the cell's files.

  Returns:
    The full name of every node in one text, such as "Network SUT:
    /sax/test/gptj (saxml_ext.params.gptj.TinyFP32 from /models/tiny) on
    10.0.0.7:10001, /sax/test/gptj ...".

  Raises:
    errors.SaxError: The admin server does not answer, or the model is not
    published.
    ConnectionError: A model server does not answer.
    ValueError: The model has no server, or a server has not loaded it.
  """
  sax.SetRoot(sax_root)
  detail = sax.ListDetail(model_id, sax.AdminOptions(_ANSWER_SECS))
  if not detail.addresses:
    raise ValueError(
      f'{model_id} has no model server yet. Check with `saxutil ls'
      f' {model_id}`, and run again when it has one'
    )
  model = f'{model_id} ({detail.model} from {detail.ckpt})'
  nodes = sorted(detail.addresses)
  for address in nodes:
    _check_loaded(address, model_id)
  return network_client.join({node: f'{model} on {node}' for node in nodes})


def _check_loaded(address: str, model_id: str) -> None:
  """Raises an error if a model server does not serve the model."""
  with grpc_util.channel(address) as channel:
    try:
      status = modelet_pb2_grpc.ModeletStub(channel).GetStatus(
        modelet_pb2.GetStatusRequest(), timeout=_ANSWER_SECS
      )
    except grpc.RpcError as error:
      raise ConnectionError(
        f'the model server at {address} does not respond ({error.code().name}:'
        f' {error.details()}). Check its log'
      ) from error
  states = {model.model_key: model.model_status for model in status.models}
  if states.get(model_id) != common_pb2.ModelStatus.LOADED:
    raise ValueError(
      f'the model server at {address} has not loaded {model_id}. Check with'
      f' `saxutil ls {model_id}`, and run again when it has'
    )


def main(argv: Sequence[str]) -> None:
  run: run_lib.Run[launch.RunningCell]
  run = runner.requested_run(argv, launch.RunningCell)
  runner.main(lambda: _subject(run), run)


def _subject(run: run_lib.Run[launch.RunningCell]) -> runner.Subject:
  cell = run.system
  if not cell.model_path:
    raise ValueError(
      '--model_path is not set. Pass a model such as /sax/test/gptj'
    )
  benchmark = benchmarks.get(run.benchmark)
  task = summarization.load(run.samples)
  generate = generator(
    cell.model_path,
    cell.sax_root,
    run.silence_secs * _DEADLINE_FACTOR,
    cell.stream or settings.reports_first_tokens(benchmark, run.scenario),
  )
  return runner.Subject(
    CellSystem(
      generate, task.prompts, summarization.end_ids(task.tokenizer), benchmark
    ),
    [len(prompt) for prompt in task.prompts],
    (lambda: network_name(cell.model_path, cell.sax_root))
    if cell.network
    else None,
  )


if __name__ == '__main__':
  run_lib.keep(run_lib.Run, run_lib.Samples, launch.RunningCell)
  program.run(main, takes_words=True)
