"""Reads and writes quantization.json, the record of a quantization.

The file is next to the step directory of an INT8 checkpoint. It names the
settings and the calibration texts. `exponents` are the powers of two by which
smoothing divided channels. Without them, the values of the source and of the
checkpoint could not be compared. `errors` are the errors of the matrices in the
report.
"""

import dataclasses
import json
import os

from converters.quantize import int8_matrix
from converters.quantize import smoothing
from saxml_ext.common import files
from saxml_ext.common import storage
from saxml_ext.pax import errors

FILE_NAME = 'quantization.json'
# The file of the report, in the same directory.
REPORT_TEXT = 'quantization_report.txt'
REPORT_HTML = 'quantization_report.html'
REPORT_JSON = 'quantization_report.json'
REPORTS = (REPORT_TEXT, REPORT_HTML, REPORT_JSON)


@dataclasses.dataclass(frozen=True)
class Options:
  """The settings of one quantization.

  Attributes:
    bits: The number of bits of a code. Smaller codes are stored as int8 too.
    softmax: True if the head's matrix is quantized.
    clipping: True to search for a bound below the largest value of each row.
    smoothing: The strength for `smoothing.choose`; None turns smoothing off.
    gptq_inputs: The maximum number of inputs of a matrix that is rounded with
      GPTQ, which needs calibration. 0 turns GPTQ off.
  """

  bits: int = 8
  softmax: bool = False
  clipping: bool = False
  smoothing: float | None = None
  gptq_inputs: int = 0


@dataclasses.dataclass(frozen=True)
class Record:
  """The contents of the file.

  Attributes:
    options: The settings of the quantization.
    calibration_articles, calibration_tokens: The numbers of articles and tokens
      used for calibration; 0 without calibration.
    calibration_crc32: The checksum of the token ids of these texts.
    exponents: The exponents of each layer; empty without smoothing.
    errors: The errors of all matrices in layer order; empty if not measured.
  """

  options: Options
  calibration_articles: int = 0
  calibration_tokens: int = 0
  calibration_crc32: int = 0
  exponents: tuple[smoothing.Exponents, ...] = ()
  errors: tuple[int8_matrix.MatrixError, ...] = ()

  def document(self) -> dict:
    """Returns the fields that do not follow from the others and the source."""
    document = dataclasses.asdict(self)
    del document['exponents'], document['errors']
    return document


def write_file(path: str, data: bytes) -> None:
  """Writes a file next to a checkpoint, which appears only when complete.

  A killed run leaves `<path>.partial` at most, and the next run replaces it. So
  resumed and uninterrupted runs leave the same files.

  Args:
    path: The file or URL to write.
    data: The contents of the file.

  Raises:
    errors.UnwritableError: The file system or the bucket reports an error.
  """
  with errors.writing(path):
    storage.write_bytes(path, data, sole_writer=True)


def write(directory: str, record: Record) -> None:
  """Writes the record of a quantization.

  Args:
    directory: The directory of the checkpoint.
    record: The contents of the file.

  Raises:
    errors.UnwritableError: The file system reports an error.
  """
  # Each entry gets one line, because 28 layers have 230,000 exponents.
  lines = [
    f' {json.dumps(name)}: {json.dumps(value)}'
    for name, value in dataclasses.asdict(record).items()
  ]
  data = '{\n' + ',\n'.join(lines) + '\n}\n'
  write_file(os.path.join(directory, FILE_NAME), data.encode('ascii'))


def read(directory: str) -> Record | None:
  """Returns the record of a quantization, or None if there is no file.

  Args:
    directory: The directory of the checkpoint.

  Raises:
    errors.CheckpointError: The file has another format.
  """
  path = os.path.join(directory, FILE_NAME)
  remedy = 'Quantize the checkpoint again with offline_quantize.'
  with errors.reading(path, remedy):
    if not storage.exists(path):
      return None
    return files.decode_json(storage.read_bytes(path), Record, path)
