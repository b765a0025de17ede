"""Audio models, as a client sees them."""

from saxml_ext.client.transport import blocking
from saxml_ext.client.transport import data_client
from saxml_ext.client.transport import options as options_lib
from saxml_ext.protobuf import audio_pb2
from saxml_ext.protobuf import audio_pb2_grpc

_RECOGNIZE = data_client.Method(
  'am.recognize', audio_pb2_grpc.AudioServiceStub, 'Recognize'
)


class AM:
  """The audio methods of a model, as coroutines; errors as `lm.LM`'s."""

  def __init__(self, client: data_client.DataClient):
    self._client = client

  async def Recognize(
    self, audio_bytes: bytes, options: options_lib.ModelOptions | None = None
  ) -> list[tuple[str, float]]:
    """Writes down what is said in a recording.

    Args:
      audio_bytes: a waveform file (RIFF), whole.
      options: extra inputs and the deadline.

    Returns:
      (text, score) per hypothesis, best first.
    """
    request = audio_pb2.AsrRequest(
      audio_bytes=audio_bytes,
      audio_format=audio_pb2.AsrRequest.WAVEFORM_FILE,
    )
    response = await self._client.call_with(_RECOGNIZE, request, options)
    return [(item.text, item.score) for item in response.hyps]


class BlockingAM(blocking.Wrapper[AM]):
  """The audio methods of a model; errors as `lm.LM`'s. Thread-safe."""

  def __init__(self, client: data_client.DataClient):
    super().__init__(AM(client))

  Recognize = blocking.method(AM.Recognize)
