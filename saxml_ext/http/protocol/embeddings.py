"""/v1/embeddings."""

import base64
from collections.abc import Sequence
import dataclasses
import struct
from typing import Any

from saxml_ext.http.protocol import fields as fields_lib

_MOST_TEXTS = 256
# What the openai package asks for, and unpacks: float32 in little-endian order.
_BASE64 = 'base64'
_FORMATS = ('float', _BASE64)


@dataclasses.dataclass(frozen=True)
class Embeddings:
  """A request.

  Attributes:
    model: as the request names it; None if it names none.
    texts: each of which gets an embedding.
    is_packed: whether embeddings are base64, not arrays.
  """

  model: str | None
  texts: Sequence[str]
  is_packed: bool

  def body(
    self, model: str, found: Sequence[Sequence[float]], tokens: int | None
  ) -> dict[str, Any]:
    """The answer.

    Args:
      model: that gave it.
      found: the texts' embeddings, [D] each.
      tokens: of all texts; None if nobody counted them.
    """
    data = [
      {'object': 'embedding', 'index': i, 'embedding': self._written(values)}
      for i, values in enumerate(found)
    ]
    answer: dict[str, Any] = {
      'object': 'list',
      'data': data,
      'model': self.model or model,
    }
    if tokens is not None:
      answer['usage'] = {'prompt_tokens': tokens, 'total_tokens': tokens}
    return answer

  def _written(self, values: Sequence[float]) -> str | list[float]:
    if not self.is_packed:
      return list(values)
    packed = struct.pack(f'<{len(values)}f', *values)
    return base64.b64encode(packed).decode()


def parse(body: fields_lib.Body) -> Embeddings:
  """Reads a request.

  Raises:
    problems.BadRequest: a parameter does not fit, or cannot be honoured.
  """
  fields = fields_lib.of(body)
  model = fields.text('model')
  if 'input' not in fields:
    fields.fail('input', 'it is missing; send a text or an array of texts')
  texts = fields.texts('input', _MOST_TEXTS)
  if not texts:
    fields.fail('input', 'it has no text')
  wanted = fields.text('encoding_format') or 'float'
  if wanted not in _FORMATS:
    fields.fail('encoding_format', f'send one of {", ".join(_FORMATS)}')
  fields.take_harmless(('user',))
  fields.refuse_unless({'dimensions': ()})
  fields.finish()
  return Embeddings(model, texts, wanted == _BASE64)
