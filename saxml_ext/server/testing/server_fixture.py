"""A model server on loopback for tests, with its own event loop."""

import asyncio
from collections.abc import Callable
import threading
from typing import Any

import grpc

from saxml_ext.params import settings as settings_lib
from saxml_ext.protobuf import completion_pb2_grpc
from saxml_ext.protobuf import lm_pb2_grpc
from saxml_ext.protobuf import modelet_pb2
from saxml_ext.protobuf import modelet_pb2_grpc
from saxml_ext.server import model_server
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.lifecycle import lifecycle
from saxml_ext.server.loading import servable
from saxml_ext.server.testing import fake_runner
from saxml_ext.server.vocabulary import codec

VOCAB_SIZE = 100
EOS_ID = 99


class ServerFixture:
  """Serves until `stop`.

  Attributes:
    address: The address of the server, "127.0.0.1:port".
    completion: The stub of the completion service.
    lm: The stub of LMService.
    modelet: The stub of the control service.
    models: The models of the server.
  """

  def __init__(
    self,
    load_fn: lifecycle.LoadFn[servable.Servable],
    **choices: Any,
  ):
    self._load_fn = load_fn
    self._choices = choices
    self._loop = asyncio.new_event_loop()
    self._thread = threading.Thread(target=self._loop.run_forever)
    self._thread.start()
    self._server = self.run(self._start())
    self.models = self._server.models
    self.address = f'127.0.0.1:{self._server.port}'
    self._channel = grpc.insecure_channel(
      self.address, options=(('grpc.enable_http_proxy', 0),)
    )
    self.completion = completion_pb2_grpc.CompletionStub(self._channel)
    self.lm = lm_pb2_grpc.LMServiceStub(self._channel)
    self.modelet = modelet_pb2_grpc.ModeletStub(self._channel)

  def run(self, coroutine: Any) -> Any:
    """Runs a coroutine on the server's event loop and returns its result."""
    return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(600)

  def load(self, key: str, **fields: Any) -> None:
    """Loads a model through the control service."""
    fields.setdefault('model_path', 'test.Params')
    fields.setdefault('checkpoint_path', '/ckpt')
    self.modelet.Load(
      modelet_pb2.LoadRequest(model_key=key, **fields), timeout=600
    )

  def stop_server(self, grace: float) -> None:
    """Stops only the server; the clients stay connected."""
    self.run(self._server.stop(grace))

  def stop(self) -> None:
    """Ends everything; may follow `stop_server`."""
    self._channel.close()
    self.stop_server(grace=0)
    self._loop.call_soon_threadsafe(self._loop.stop)
    self._thread.join()
    self._loop.close()

  async def _start(self) -> model_server.ModelServer:
    server = model_server.ModelServer(self._load_fn, 0, **self._choices)
    await server.start()
    return server


def spec(checkpoint_path: str = '/ckpt') -> entry_lib.Spec:
  """Returns the spec of the model that `load` loads by default."""
  return entry_lib.Spec('test.Params', checkpoint_path, {}, {})


def fake_load_fn(
  params: type,
  runner: fake_runner.FakeRunner,
  words: codec.Codec | None = None,
  vocab_size: int = VOCAB_SIZE,
) -> Callable[..., servable.Servable]:
  """Returns a load function for models with a fake engine.

  Args:
    params: The serving params; their EOS_ID and BATCH_SIZE are replaced.
    runner: The fake engine.
    words: The tokenizer beside the checkpoint, if there is one.
    vocab_size: The size of the vocabulary.
  """

  def load(
    spec: entry_lib.Spec, on_failure: Callable[[str], None]
  ) -> servable.Servable:
    attributes = {'EOS_ID': EOS_ID, 'BATCH_SIZE': runner.num_slots}
    settings = settings_lib.Settings.from_params(
      type(params.__name__, (params,), attributes)
    )
    ids = codec.IdCodec(vocab_size)
    codecs = codec.Codecs(ids, ids, vocab_size, words)
    return servable.serve(settings, codecs, runner, on_failure)

  return load
