"""quantization.json: how an INT8 checkpoint was made, and of what.

Beside the checkpoint's step directory. `exponents` tell by what powers of two
smoothing divided channels; without them the source's values could not be
compared with those of the checkpoint.
"""

import dataclasses
import json
import os

from converters import quantization_options
from converters import quantization_smoothing
from saxml_ext.pax import errors

FILE_NAME = 'quantization.json'


@dataclasses.dataclass(frozen=True)
class Record:
  """Contents of the file.

  Attributes:
    options: settings of the quantization.
    calibration_articles, calibration_tokens: of the calibration texts; 0: none.
    exponents: of each layer; empty without smoothing.
  """

  options: quantization_options.Options
  calibration_articles: int = 0
  calibration_tokens: int = 0
  exponents: tuple[quantization_smoothing.Exponents, ...] = ()


def write(directory: str, record: Record) -> None:
  """Writes the file.

  Raises:
    errors.CheckpointError: the file system refuses.
  """
  path = os.path.join(directory, FILE_NAME)
  document = dataclasses.asdict(record)
  try:
    with open(path + '.tmp', 'w', encoding='ascii') as f:
      # One line per entry, the exponents of a layer being one.
      f.write('{\n')
      f.write(
          ',\n'.join(
              f' {json.dumps(name)}: {json.dumps(value)}'
              for name, value in document.items()
          )
      )
      f.write('\n}\n')
    os.replace(path + '.tmp', path)
  except OSError as e:
    raise errors.CheckpointError(
        f'{path} cannot be written: {e.strerror}'
    ) from e


def read(directory: str) -> Record | None:
  """Reads the file; None if there is none.

  Raises:
    errors.CheckpointError: it is not such a file.
  """
  path = os.path.join(directory, FILE_NAME)
  if not os.path.isfile(path):
    return None
  try:
    with open(path, encoding='utf-8') as f:
      document = json.load(f)
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
  except (OSError, KeyError, TypeError, ValueError, AttributeError) as e:
    raise errors.CheckpointError(
        f'{path} is not what offline_quantize writes: {e!r}; quantize the '
        'checkpoint again'
    ) from e
