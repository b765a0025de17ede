"""quantization.json: how an INT8 checkpoint was made, and of what.

It lies beside the checkpoint's step directory. `exponents` are the powers of
two by which smoothing divided channels; without them the source's values could
not be compared with those of the checkpoint. `errors` are those of the matrices
in the report.
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
# The report beside it.
REPORT_TEXT = 'quantization_report.txt'
REPORT_HTML = 'quantization_report.html'
REPORT_JSON = 'quantization_report.json'
REPORTS = (REPORT_TEXT, REPORT_HTML, REPORT_JSON)


@dataclasses.dataclass(frozen=True)
class Options:
  """Settings of one quantization.

  Attributes:
    bits: The bits of a code; codes of fewer than 8 are stored as int8 too.
    softmax: True if the head's matrix is quantized.
    clipping: True to search a bound below a row's largest value.
    smoothing: The strength for `smoothing.choose`; None leaves sizes alone.
    gptq_inputs: The most inputs of a matrix that is rounded by GPTQ's rule,
      which needs calibration; 0 for none.
  """

  bits: int = 8
  softmax: bool = False
  clipping: bool = False
  smoothing: float | None = None
  gptq_inputs: int = 0


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

  options: Options
  calibration_articles: int = 0
  calibration_tokens: int = 0
  calibration_crc32: int = 0
  exponents: tuple[smoothing.Exponents, ...] = ()
  errors: tuple[int8_matrix.MatrixError, ...] = ()

  def document(self) -> dict:
    """Returns all but what follows from the rest and the source."""
    document = dataclasses.asdict(self)
    del document['exponents'], document['errors']
    return document


def write_file(path: str, data: bytes) -> None:
  """Writes a file beside a checkpoint, whole or not at all.

  A run that is killed in between leaves `<path>.partial` at most, which the
  next one replaces: what was resumed has the same files as what was not.

  Raises:
    errors.UnwritableError: The file system or the bucket refuses.
  """
  with errors.writing(path):
    storage.write_bytes(path, data, sole_writer=True)


def write(directory: str, record: Record) -> None:
  """Writes the file.

  Raises:
    errors.UnwritableError: The file system refuses.
  """
  # One line per entry: the exponents of 28 layers are 230,000 numbers.
  lines = [
    f' {json.dumps(name)}: {json.dumps(value)}'
    for name, value in dataclasses.asdict(record).items()
  ]
  data = '{\n' + ',\n'.join(lines) + '\n}\n'
  write_file(os.path.join(directory, FILE_NAME), data.encode('ascii'))


def read(directory: str) -> Record | None:
  """Reads the file; None if there is none.

  Raises:
    errors.CheckpointError: It is not such a file.
  """
  path = os.path.join(directory, FILE_NAME)
  remedy = 'it is not what offline_quantize writes: quantize again'
  with errors.reading(path, remedy):
    if not storage.exists(path):
      return None
    return files.decode_json(storage.read_bytes(path), Record, path)
