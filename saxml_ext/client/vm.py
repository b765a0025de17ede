"""Vision models, as a client sees them."""

from collections.abc import Iterable, Sequence
from typing import Any

from saxml_ext.client import blocking
from saxml_ext.client import data_client
from saxml_ext.client import options as options_lib
from saxml_ext.protobuf import vision_pb2
from saxml_ext.protobuf import vision_pb2_grpc

_STUB = vision_pb2_grpc.VisionServiceStub


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

# (center x, center y, width, height) in pixels.
Box = tuple[float, float, float, float]
# A box, its text, its score, and (height, width, values) of its mask, a byte
# per pixel.
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


class VM:
  """The vision methods of a model, as coroutines; errors as `lm.LM`'s.

  Images are encoded files. Results are (content, score) per sample, in the
  server's order.
  """

  def __init__(self, client: data_client.DataClient):
    self._client = client

  async def Classify(
      self, image_bytes: bytes, options: options_lib.ModelOptions | None = None
  ) -> list[tuple[str, float]]:
    """Labels of an image."""
    request = vision_pb2.ClassifyRequest(image_bytes=image_bytes)
    response = await self._call(_CLASSIFY, request, options)
    return [(item.text, item.score) for item in response.texts]

  async def TextToImage(
      self, text: str, options: options_lib.ModelOptions | None = None
  ) -> list[tuple[bytes, float]]:
    """Images for a text."""
    request = vision_pb2.TextToImageRequest(text=text)
    return _images(await self._call(_TEXT_TO_IMAGE, request, options))

  async def TextAndImageToImage(
      self,
      text: str,
      image_bytes: bytes,
      options: options_lib.ModelOptions | None = None,
  ) -> list[tuple[bytes, float]]:
    """Images for a text and an image."""
    request = vision_pb2.TextAndImageToImageRequest(
        text=text, image_bytes=image_bytes
    )
    return _images(await self._call(_TEXT_AND_IMAGE_TO_IMAGE, request, options))

  async def ImageToImage(
      self, image_bytes: bytes, options: options_lib.ModelOptions | None = None
  ) -> list[tuple[bytes, float]]:
    """Images for an image."""
    request = vision_pb2.ImageToImageRequest(image_bytes=image_bytes)
    return _images(await self._call(_IMAGE_TO_IMAGE, request, options))

  async def Embed(
      self, image: bytes, options: options_lib.ModelOptions | None = None
  ) -> list[float]:
    """The image's embedding."""
    request = vision_pb2.EmbedRequest(image_bytes=image)
    return list((await self._call(_EMBED, request, options)).embedding)

  async def Detect(
      self,
      image_bytes: bytes,
      text: Sequence[str] = (),
      boxes: Iterable[Box] = (),
      options: options_lib.ModelOptions | None = None,
  ) -> list[Detection]:
    """Finds things in an image.

    Args:
      image_bytes: the image.
      text: what to look for, where the model lets one choose.
      boxes: where to look, likewise.
      options: see the class.
    """
    request = vision_pb2.DetectRequest(
        image_bytes=image_bytes,
        text=text,
        boxes_of_interest=[
            vision_pb2.BoundingBox(cx=cx, cy=cy, w=w, h=h)
            for cx, cy, w, h in boxes
        ],
    )
    response = await self._call(_DETECT, request, options)
    return [_detection(box) for box in response.bounding_boxes]

  async def ImageToText(
      self,
      image_bytes: bytes,
      text: str = '',
      options: options_lib.ModelOptions | None = None,
  ) -> list[tuple[bytes, float]]:
    """Texts in UTF-8 for an image; `text` is their beginning."""
    request = vision_pb2.ImageToTextRequest(image_bytes=image_bytes, text=text)
    return _texts(await self._call(_IMAGE_TO_TEXT, request, options))

  async def VideoToText(
      self,
      image_frames: Sequence[bytes],
      text: str = '',
      options: options_lib.ModelOptions | None = None,
  ) -> list[tuple[bytes, float]]:
    """Texts in UTF-8 for a video; `text` is their beginning."""
    request = vision_pb2.VideoToTextRequest(
        image_frames=image_frames, text=text
    )
    return _texts(await self._call(_VIDEO_TO_TEXT, request, options))

  async def _call(
      self,
      method: data_client.Method,
      request: Any,
      options: options_lib.ModelOptions | None,
  ) -> Any:
    return await self._client.call_with(method, request, options)


class BlockingVM(VM):
  """The vision methods of a model; errors as `lm.BlockingLM`'s. Thread-safe.

  Images are encoded files. Results are (content, score) per sample, in the
  server's order.
  """

  Classify = blocking.of(VM.Classify)
  TextToImage = blocking.of(VM.TextToImage)
  TextAndImageToImage = blocking.of(VM.TextAndImageToImage)
  ImageToImage = blocking.of(VM.ImageToImage)
  Embed = blocking.of(VM.Embed)
  Detect = blocking.of(VM.Detect)
  ImageToText = blocking.of(VM.ImageToText)
  VideoToText = blocking.of(VM.VideoToText)
