"""quantization.json: how an INT8 checkpoint was made, and of what.

It lies beside the checkpoint's step directory. `exponents` tell by what powers
of two smoothing divided channels; without them the source's values could not
be compared with those of the checkpoint. `errors` are what the report tells of
the matrices.
"""

import dataclasses
import json
import os

from converters.quantize import matrix_error
from converters.quantize import recipe
from converters.quantize import side_files
from converters.quantize.methods import smoothing
from saxml_ext.common import errors as common_errors
from saxml_ext.common import storage
from saxml_ext.pax import errors

FILE_NAME = 'quantization.json'


@dataclasses.dataclass(frozen=True)
class Record:
  """Contents of the file.

  Attributes:
    options: The settings of the quantization.
    calibration_articles, calibration_tokens: How many articles and tokens it
      was calibrated on; 0 without calibration.
    calibration_crc32: Checksum of the token ids of these texts.
    exponents: Those of each layer; empty without smoothing.
    errors: Those of all matrices, layer by layer; empty if not measured.
  """

  options: recipe.Options
  calibration_articles: int = 0
  calibration_tokens: int = 0
  calibration_crc32: int = 0
  exponents: tuple[smoothing.Exponents, ...] = ()
  errors: tuple[matrix_error.MatrixError, ...] = ()

  def document(self) -> dict:
    """All but what follows from the rest and the source."""
    document = dataclasses.asdict(self)
    del document['exponents'], document['errors']
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
  side_files.write(path, data.encode('ascii'))


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
      recipe.Options(**document.pop('options')),
      exponents=tuple(
        {tap: tuple(map(int, values)) for tap, values in entry.items()}
        for entry in document.pop('exponents')
      ),
      errors=tuple(
        matrix_error.MatrixError(**entry)
        for entry in document.pop('errors', ())
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
