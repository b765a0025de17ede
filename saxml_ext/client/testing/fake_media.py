"""A model server for tests with vision, audio, multimodal and custom methods.

Every answer repeats the request.
"""

from saxml_ext.client.testing import fake_cell
from saxml_ext.protobuf import audio_pb2
from saxml_ext.protobuf import audio_pb2_grpc
from saxml_ext.protobuf import custom_pb2
from saxml_ext.protobuf import custom_pb2_grpc
from saxml_ext.protobuf import multimodal_pb2
from saxml_ext.protobuf import multimodal_pb2_grpc
from saxml_ext.protobuf import vision_pb2
from saxml_ext.protobuf import vision_pb2_grpc


class _Vision(vision_pb2_grpc.VisionServiceServicer):
  def __init__(self, requests: list):
    self._requests = requests

  def Classify(self, request, context):
    self._requests.append(request)
    text = request.image_bytes.decode()
    item = vision_pb2.DecodedText(text=f'label of {text}', score=-0.5)
    return vision_pb2.ClassifyResponse(texts=[item])

  def TextToImage(self, request, context):
    self._requests.append(request)
    return vision_pb2.TextToImageResponse(images=_images(request.text))

  def TextAndImageToImage(self, request, context):
    self._requests.append(request)
    images = _images(request.text + request.image_bytes.decode())
    return vision_pb2.TextAndImageToImageResponse(images=images)

  def ImageToImage(self, request, context):
    self._requests.append(request)
    images = _images(request.image_bytes.decode())
    return vision_pb2.ImageToImageResponse(images=images)

  def Embed(self, request, context):
    self._requests.append(request)
    return vision_pb2.EmbedResponse(embedding=list(request.image_bytes))

  def Detect(self, request, context):
    self._requests.append(request)
    mask = vision_pb2.DetectionMask(
      mask_values=b'\0\xff', mask_height=1, mask_width=2
    )
    boxes = [
      vision_pb2.BoundingBox(
        cx=1.5, cy=2, w=3, h=4, text=text, score=0.25, mask=mask
      )
      for text in request.text
    ]
    return vision_pb2.DetectResponse(bounding_boxes=boxes)

  def ImageToText(self, request, context):
    self._requests.append(request)
    return vision_pb2.ImageToTextResponse(
      texts=[vision_pb2.DecodedText(text=request.text + 'é', score=-1)]
    )

  def VideoToText(self, request, context):
    self._requests.append(request)
    text = f'{request.text}{len(request.image_frames)} frames'
    return vision_pb2.VideoToTextResponse(
      texts=[vision_pb2.DecodedText(text=text, score=-1)]
    )

  def VideoToToken(self, request, context):
    self._requests.append(request)
    tokens = [len(frame) + 0.5 for frame in request.image_frames]
    return vision_pb2.VideoToTokenResponse(tokens=tokens)

  def TokenToVideo(self, request, context):
    self._requests.append(request)
    frames = [f'{token:g}'.encode() for token in request.tokens]
    return vision_pb2.TokenToVideoResponse(image_frames=frames)


def _images(text: str) -> list[vision_pb2.ImageGenerations]:
  return [
    vision_pb2.ImageGenerations(image=f'{text} {i}'.encode(), score=-i)
    for i in (1, 2)
  ]


class _Audio(audio_pb2_grpc.AudioServiceServicer):
  def __init__(self, requests: list):
    self._requests = requests

  def Recognize(self, request, context):
    self._requests.append(request)
    text = f'{len(request.audio_bytes)} bytes'
    return audio_pb2.AsrResponse(
      hyps=[audio_pb2.AsrHypothesis(text=text, score=-2)]
    )


class _Custom(custom_pb2_grpc.CustomServiceServicer):
  def Custom(self, request, context):
    answer = request.method_name.encode() + b' ' + request.request
    return custom_pb2.CustomResponse(response=answer)


class _Multimodal(multimodal_pb2_grpc.MultimodalServiceServicer):
  def Generate(self, request, context):
    result = multimodal_pb2.GenerateResult(
      items=request.request.items, score=-3
    )
    return multimodal_pb2.GenerateRpcResponse(
      response=multimodal_pb2.GenerateResponse(results=[result])
    )

  def Score(self, request, context):
    results = [
      multimodal_pb2.ScoreResult(score=-i)
      for i, _ in enumerate(request.request.suffix_items, 1)
    ]
    return multimodal_pb2.ScoreRpcResponse(
      response=multimodal_pb2.ScoreResponse(results=results)
    )

  def Embed(self, request, context):
    values = [float(item.ByteSize()) for item in request.request.items]
    embedding = multimodal_pb2.DoubleEmbedding(values=values)
    return multimodal_pb2.EmbedRpcResponse(
      response=multimodal_pb2.EmbedResponse(embedding=embedding)
    )


class FakeMediaServer:
  """A server on loopback that runs until `stop`.

  Attributes:
    address: The address, "127.0.0.1:port".
    requests: The received requests of the vision and audio services.
  """

  def __init__(self):
    self.requests = []
    self._server = fake_cell.Server(self._add, None, wrap_text=False)
    self.address = self._server.address

  def stop(self) -> None:
    self._server.stop()

  def _add(self, unused_servicer, server) -> None:
    vision_pb2_grpc.add_VisionServiceServicer_to_server(
      _Vision(self.requests), server
    )
    audio_pb2_grpc.add_AudioServiceServicer_to_server(
      _Audio(self.requests), server
    )
    custom_pb2_grpc.add_CustomServiceServicer_to_server(_Custom(), server)
    multimodal_pb2_grpc.add_MultimodalServiceServicer_to_server(
      _Multimodal(), server
    )
