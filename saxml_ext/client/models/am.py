"""Audio models, as a client sees them."""

from saxml_ext.client.transport import blocking
from saxml_ext.client.transport import data_client
from saxml_ext.client.transport import options as options_lib
from saxml_ext.protobuf import audio_pb2
from saxml_ext.protobuf import audio_pb2_grpc

_RECOGNIZE = data_client.Method(
  'am.recognize', audio_pb2_grpc.AudioServiceStub, 'Recognize'
)


class AM(data_client.Caller):
  """The audio methods of a model, as coroutines; errors as `lm.LM`'s."""

  async def Recognize(
    self,
    audio_bytes: data_client.Content | None = None,
    options: options_lib.ModelOptions | None = None,
    *,
    id: data_client.Content | None = None,
  ) -> list[tuple[str, float]]:
    """Writes down what is said in a recording.

    Args:
      audio_bytes: a waveform file (RIFF), whole.
      options: extra inputs and the deadline.
      id: Another name of `audio_bytes`, which stock Sax's client has.

    Returns:
      (text, score) per hypothesis, best first.

    Raises:
      TypeError: The recording is missing, or is given under both names.
    """
    recordings = [item for item in (audio_bytes, id) if item is not None]
    if len(recordings) != 1:
      raise TypeError(
        f'Recognize got {len(recordings)} recordings. Give one, as audio_bytes'
        ' or as id.'
      )
    request = audio_pb2.AsrRequest(
      audio_bytes=data_client.to_bytes(recordings[0]),
      audio_format=audio_pb2.AsrRequest.WAVEFORM_FILE,
    )
    response = await self._client.call_with(_RECOGNIZE, request, options)
    return [(item.text, item.score) for item in response.hyps]


class BlockingAM(blocking.Wrapper[AM]):
  """The audio methods of a model; errors as `lm.LM`'s. Thread-safe."""

  def __init__(self, client: data_client.DataClient):
    super().__init__(AM(client))

  Recognize = blocking.method(AM.Recognize)
