"""quantization.json: how an INT8 checkpoint was made, and of what.

Beside the checkpoint's step directory. `exponents` tell by what powers of two
smoothing divided channels; without them the source's values could not be
compared with those of the checkpoint.
"""

import dataclasses
import json
import os

from converters import quantization_files
from converters import quantization_options
from converters import quantization_smoothing
from saxml_ext.common import errors as common_errors
from saxml_ext.common import storage
from saxml_ext.pax import errors

FILE_NAME = 'quantization.json'


@dataclasses.dataclass(frozen=True)
class Record:
  """Contents of the file.

  Attributes:
    options: settings of the quantization.
    calibration_articles, calibration_tokens: of the calibration texts; 0: none.
    calibration_crc32: checksum of their token ids.
    exponents: of each layer; empty without smoothing.
  """

  options: quantization_options.Options
  calibration_articles: int = 0
  calibration_tokens: int = 0
  calibration_crc32: int = 0
  exponents: tuple[quantization_smoothing.Exponents, ...] = ()

  def document(self) -> dict:
    """All but the exponents, which the rest and the source decide."""
    document = dataclasses.asdict(self)
    del document['exponents']
    return document


def write(directory: str, record: Record) -> None:
  """Writes the file.

  Raises:
    errors.UnwritableError: the file system refuses.
  """
  path = os.path.join(directory, FILE_NAME)
  # One line per entry: the exponents of 28 layers are 230,000 numbers.
  lines = [
      f' {json.dumps(name)}: {json.dumps(value)}'
      for name, value in dataclasses.asdict(record).items()
  ]
  data = '{\n' + ',\n'.join(lines) + '\n}\n'
  quantization_files.write(path, data.encode('ascii'))


def read(directory: str) -> Record | None:
  """Reads the file; None if there is none.

  Raises:
    errors.CheckpointError: it is not such a file.
  """
  path = os.path.join(directory, FILE_NAME)
  try:
    if not storage.exists(path):
      return None
    document = json.loads(storage.read_bytes(path))
    return Record(
        quantization_options.Options(**document.pop('options')),
        exponents=tuple(
            quantization_smoothing.Exponents(
                tuple(map(int, entry['norm'])), tuple(map(int, entry['mixed']))
            )
            for entry in document.pop('exponents')
        ),
        **document,
    )
  except (
      OSError,
      common_errors.SaxError,
      KeyError,
      TypeError,
      ValueError,
      AttributeError,
  ) as e:
    raise errors.CheckpointError(
        f'{path} is not what offline_quantize writes: {e!r}; quantize the '
        'checkpoint again'
    ) from e
