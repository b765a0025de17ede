"""Sends requests to vision, audio and multimodal models.

Multimodal requests and responses are those of multimodal.proto.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from saxml_ext.client.transport import blocking
from saxml_ext.client.transport import data_client
from saxml_ext.client.transport import options as options_lib
from saxml_ext.protobuf import audio_pb2
from saxml_ext.protobuf import audio_pb2_grpc
from saxml_ext.protobuf import multimodal_pb2
from saxml_ext.protobuf import multimodal_pb2_grpc
from saxml_ext.protobuf import vision_pb2
from saxml_ext.protobuf import vision_pb2_grpc

_RECOGNIZE = data_client.Method(
  'am.recognize', audio_pb2_grpc.AudioServiceStub, 'Recognize'
)
_MM_STUB = multimodal_pb2_grpc.MultimodalServiceStub
_MM_GENERATE = data_client.Method('mm.generate', _MM_STUB, 'Generate')
_MM_SCORE = data_client.Method('mm.score', _MM_STUB, 'Score')
_MM_EMBED = data_client.Method('mm.embed', _MM_STUB, 'Embed')

_STUB = vision_pb2_grpc.VisionServiceStub
_bytes = data_client.to_bytes
Content = data_client.Content
# Options of a request; None for no extra inputs and no deadline.
_Options = options_lib.ModelOptions | None


def _method(name: str, rpc: str) -> data_client.Method:
  return data_client.Method(name, _STUB, rpc)


_CLASSIFY = _method('vm.classify', 'Classify')
_TEXT_TO_IMAGE = _method('vm.generate', 'TextToImage')
_TEXT_AND_IMAGE_TO_IMAGE = _method(
  'vm.text_and_image_to_image', 'TextAndImageToImage'
)
_EMBED = _method('vm.embed', 'Embed')
_DETECT = _method('vm.detect', 'Detect')
_IMAGE_TO_TEXT = _method('vm.image_to_text', 'ImageToText')
_IMAGE_TO_IMAGE = _method('vm.image_to_image', 'ImageToImage')
_VIDEO_TO_TEXT = _method('vm.video_to_text', 'VideoToText')
_VIDEO_TO_TOKEN = _method('vm.video_to_token', 'VideoToToken')
_TOKEN_TO_VIDEO = _method('vm.token_to_video', 'TokenToVideo')

# The (center x, center y, width, height) of a box, in pixels.
Box = tuple[float, float, float, float]
# A box, its text, its score, and the (height, width, values) of its mask. A
# mask has one byte per pixel.
Detection = tuple[
  float, float, float, float, bytes, float, tuple[int, int, bytes]
]


def _images(response: Any) -> list[tuple[bytes, float]]:
  return [(item.image, item.score) for item in response.images]


def _texts(response: Any) -> list[tuple[bytes, float]]:
  return [(item.text.encode(), item.score) for item in response.texts]


def _detection(box: vision_pb2.BoundingBox) -> Detection:
  mask = box.mask.mask_height, box.mask.mask_width, box.mask.mask_values
  return box.cx, box.cy, box.w, box.h, box.text.encode(), box.score, mask


class VM(data_client.Caller):
  """The vision methods of a model, as coroutines; errors as in `lm.LM`.

  Images are encoded files (PNG, JPEG and so on) in a format that the model
  supports. A text in place of an image is sent as its UTF-8 bytes.
  Results are (content, score) pairs, one per sample, in the server's order. A
  higher score is better. `options` carry extra inputs and the deadline.
  """

  async def Classify(
    self, image_bytes: Content, options: _Options = None
  ) -> list[tuple[str, float]]:
    """Returns the (label, score) pairs of an image, best first."""
    request = vision_pb2.ClassifyRequest(image_bytes=_bytes(image_bytes))
    response = await self._call(_CLASSIFY, request, options)
    return [(item.text, item.score) for item in response.texts]

  async def TextToImage(
    self, text: str, options: _Options = None
  ) -> list[tuple[bytes, float]]:
    """Generates images from a text: an (image, score) pair per sample."""
    request = vision_pb2.TextToImageRequest(text=text)
    return _images(await self._call(_TEXT_TO_IMAGE, request, options))

  async def TextAndImageToImage(
    self, text: str, image_bytes: Content, options: _Options = None
  ) -> list[tuple[bytes, float]]:
    """Edits an image by a text: an (image, score) pair per sample."""
    request = vision_pb2.TextAndImageToImageRequest(
      text=text, image_bytes=_bytes(image_bytes)
    )
    return _images(await self._call(_TEXT_AND_IMAGE_TO_IMAGE, request, options))

  async def ImageToImage(
    self, text: Content, options: _Options = None
  ) -> list[tuple[bytes, float]]:
    """Generates images from an image: an (image, score) pair per sample.

    Args:
      text: The image. Stock Sax's client gives the argument this name.
      options: The options, see the class.
    """
    request = vision_pb2.ImageToImageRequest(image_bytes=_bytes(text))
    return _images(await self._call(_IMAGE_TO_IMAGE, request, options))

  async def Embed(
    self, image: Content, options: _Options = None
  ) -> list[float]:
    """Returns the embedding of an image, [D]."""
    request = vision_pb2.EmbedRequest(image_bytes=_bytes(image))
    return list((await self._call(_EMBED, request, options)).embedding)

  async def Detect(
    self,
    image_bytes: Content,
    text: Sequence[str] = (),
    boxes: Iterable[Box] = (),
    options: _Options = None,
  ) -> list[Detection]:
    """Finds objects in an image.

    Args:
      image_bytes: The image.
      text: The objects to find, if the model supports a choice.
      boxes: The regions to search, in pixels, if the model supports a choice.
      options: The options, see the class.

    Returns:
      The detections: (center x, center y, width, height, text in UTF-8, score,
        (height, width, values) of a mask with one byte per pixel).
    """
    request = vision_pb2.DetectRequest(
      image_bytes=_bytes(image_bytes),
      text=text,
      boxes_of_interest=[
        vision_pb2.BoundingBox(cx=cx, cy=cy, w=w, h=h) for cx, cy, w, h in boxes
      ],
    )
    response = await self._call(_DETECT, request, options)
    return [_detection(box) for box in response.bounding_boxes]

  async def ImageToText(
    self, image_bytes: Content, text: str = '', options: _Options = None
  ) -> list[tuple[bytes, float]]:
    """Describes an image: a (text in UTF-8, score) pair per sample.

    Args:
      image_bytes: The image.
      text: The beginning of each description.
      options: The options, see the class.
    """
    request = vision_pb2.ImageToTextRequest(
      image_bytes=_bytes(image_bytes), text=text
    )
    return _texts(await self._call(_IMAGE_TO_TEXT, request, options))

  async def VideoToText(
    self,
    image_frames: Iterable[Content],
    text: str = '',
    options: _Options = None,
  ) -> list[tuple[bytes, float]]:
    """Describes a video: a (text in UTF-8, score) pair per sample.

    Args:
      image_frames: The images of the video, in order.
      text: The beginning of each description.
      options: The options, see the class.
    """
    request = vision_pb2.VideoToTextRequest(
      image_frames=map(_bytes, image_frames), text=text
    )
    return _texts(await self._call(_VIDEO_TO_TEXT, request, options))

  async def VideoToToken(
    self, image_frames: Iterable[Content], options: _Options = None
  ) -> list[float]:
    """Encodes a video, given as its images in order, to tokens, [T]."""
    request = vision_pb2.VideoToTokenRequest(
      image_frames=map(_bytes, image_frames)
    )
    response = await self._call(_VIDEO_TO_TOKEN, request, options)
    return list(response.tokens)

  async def TokenToVideo(
    self, tokens: Iterable[float], options: _Options = None
  ) -> list[bytes]:
    """Decodes tokens to the images of a video, in order."""
    request = vision_pb2.TokenToVideoRequest(tokens=tokens)
    response = await self._call(_TOKEN_TO_VIDEO, request, options)
    return list(response.image_frames)


class BlockingVM(blocking.Wrapper[VM]):
  """The vision methods of a model. Thread-safe.

  Arguments, results and errors are those of `VM`.
  """

  COROUTINES = VM

  Classify = blocking.method(VM.Classify)
  TextToImage = blocking.method(VM.TextToImage)
  TextAndImageToImage = blocking.method(VM.TextAndImageToImage)
  ImageToImage = blocking.method(VM.ImageToImage)
  Embed = blocking.method(VM.Embed)
  Detect = blocking.method(VM.Detect)
  ImageToText = blocking.method(VM.ImageToText)
  VideoToText = blocking.method(VM.VideoToText)
  VideoToToken = blocking.method(VM.VideoToToken)
  TokenToVideo = blocking.method(VM.TokenToVideo)


class AM(data_client.Caller):
  """The audio methods of a model, as coroutines; errors as in `lm.LM`."""

  async def Recognize(
    self,
    audio_bytes: data_client.Content | None = None,
    options: _Options = None,
    *,
    id: data_client.Content | None = None,
  ) -> list[tuple[str, float]]:
    """Transcribes a recording.

    Args:
      audio_bytes: A complete waveform file (RIFF).
      options: The extra inputs and the deadline.
      id: Another name of `audio_bytes`, used by stock Sax's client.

    Returns:
      A (text, score) pair per hypothesis, best first.

    Raises:
      TypeError: The recording is missing, or is given under both names.
    """
    recordings = [item for item in (audio_bytes, id) if item is not None]
    if len(recordings) != 1:
      raise TypeError(
        f'Recognize got {len(recordings)} recordings. Pass one, as'
        ' audio_bytes or as id.'
      )
    request = audio_pb2.AsrRequest(
      audio_bytes=data_client.to_bytes(recordings[0]),
      audio_format=audio_pb2.AsrRequest.WAVEFORM_FILE,
    )
    response = await self._call(_RECOGNIZE, request, options)
    return [(item.text, item.score) for item in response.hyps]


class BlockingAM(blocking.Wrapper[AM]):
  """The audio methods of a model; errors as in `lm.LM`. Thread-safe."""

  COROUTINES = AM

  Recognize = blocking.method(AM.Recognize)


class MM(data_client.Caller):
  """The multimodal methods of a model, as coroutines; errors as in `lm.LM`."""

  async def Generate(
    self, request: multimodal_pb2.GenerateRequest, options: _Options = None
  ) -> multimodal_pb2.GenerateResponse:
    """Continues a sequence of texts, images and sounds.

    Args:
      request: The items, in order.
      options: The extra inputs and the deadline.

    Returns:
      The continuations, each with a score.
    """
    message = multimodal_pb2.GenerateRpcRequest(request=request)
    return (await self._call(_MM_GENERATE, message, options)).response

  async def Score(
    self, request: multimodal_pb2.ScoreRequest, options: _Options = None
  ) -> multimodal_pb2.ScoreResponse:
    """Scores continuations of a sequence of items.

    Args:
      request: The sequence of items, and the items of each continuation.
      options: The extra inputs and the deadline.

    Returns:
      The natural log-probability of each continuation.
    """
    message = multimodal_pb2.ScoreRpcRequest(request=request)
    return (await self._call(_MM_SCORE, message, options)).response

  async def Embed(
    self, request: multimodal_pb2.EmbedRequest, options: _Options = None
  ) -> multimodal_pb2.EmbedResponse:
    """Computes one embedding of a sequence of items.

    Args:
      request: The items, in order.
      options: The extra inputs and the deadline.

    Returns:
      The embedding, [D].
    """
    message = multimodal_pb2.EmbedRpcRequest(request=request)
    return (await self._call(_MM_EMBED, message, options)).response


class BlockingMM(blocking.Wrapper[MM]):
  """The multimodal methods of a model; errors as in `lm.LM`. Thread-safe."""

  COROUTINES = MM

  Generate = blocking.method(MM.Generate)
  Score = blocking.method(MM.Score)
  Embed = blocking.method(MM.Embed)
