"""Defines a LoadGen run: its specification, and the lines that report progress.

The harness writes the specification to run.json, and the process that runs
LoadGen reads it. The process reports on its standard output. LoadGen writes
there too, so the lines are marked.
"""

import json
import os
from typing import Any, Generic, TypeVar

import msgspec

from saxml_ext.common import files

FILE = 'run.json'
ACCURACY = 'accuracy'
PERFORMANCE = 'performance'
MODES = (ACCURACY, PERFORMANCE)

_MARK = '::run:: '
_S = TypeVar('_S')


class Samples(  # type: ignore[call-arg]
  msgspec.Struct, frozen=True, forbid_unknown_fields=True
):
  """The samples that LoadGen draws from.

  Attributes:
    dataset_path: The file of articles or questions; '': the bundled file.
    tokenizer_path: The tokenizer or the vocabulary; '': the one beside the
      checkpoint.
    max_input_length: The number of tokens after which a prompt is cut; None:
      the default of the model.
    sample_count: The number of samples to take from the front; 0: all.
  """

  dataset_path: str = ''
  tokenizer_path: str = ''
  max_input_length: int | None = None
  sample_count: int = 0


class Run(  # type: ignore[call-arg]
  msgspec.Struct, Generic[_S], frozen=True, forbid_unknown_fields=True
):
  """The specification of a run.

  Attributes:
    benchmark: LoadGen's name of the benchmark.
    scenario: LoadGen's name of the scenario.
    mode: The mode, ACCURACY or PERFORMANCE.
    user_conf: The path of LoadGen's user.conf.
    output_dir: The directory for LoadGen's logs.
    concurrency: The maximum number of unanswered samples.
    silence_secs: The time without any answer that ends the run.
    system: The system that answers.
    samples: The samples of the set.
    loadgen_attributes: The fields of TestSettings that user.conf cannot set.
    audit_conf: The path of a compliance test's audit.config; '': no test.
    timeline: The path of a CSV file for the times of every sample; '': none.
    buffer_count: The number of samples that LoadGen draws from; 0: the whole
      set.
    warm_up: The bursts to answer before the run; see `warm_up.parse`.
    warm_up_rest_secs: The pause between warm-up and run.
  """

  benchmark: str
  scenario: str
  mode: str
  user_conf: str
  output_dir: str
  concurrency: int
  silence_secs: float
  system: _S
  samples: Samples
  loadgen_attributes: dict[str, int] = {}
  audit_conf: str = ''
  timeline: str = ''
  buffer_count: int = 0
  warm_up: str = ''
  warm_up_rest_secs: float = 0.0


def read(path: str, system: type[_S] | Any) -> Run[_S]:
  """Reads a specification.

  Args:
    path: The path of the file.
    system: The type of the system that the calling program runs.

  Raises:
    OSError: The file cannot be read.
    ValueError: The file is not a specification, or is for another program.
  """
  return files.read_json(path, Run[system])  # type: ignore[valid-type]


class RunStatus(msgspec.Struct, frozen=True):  # type: ignore[call-arg]
  """The state of a run.

  Attributes:
    issued: The number of samples that LoadGen has issued; 0 while it prepares.
    done: The number of answered samples.
    seconds: The elapsed time since the first sample was issued.
    finished: True if LoadGen has ended the run and written its logs.
    failure: The reason why the run was abandoned; None if it was not.
  """

  issued: int = 0
  done: int = 0
  seconds: float = 0.0
  finished: bool = False
  failure: str | None = None


def send(status: RunStatus) -> None:
  """Writes a status to standard output with a single write."""
  line = f'{_MARK}{json.dumps(msgspec.structs.asdict(status))}\n'
  # The text begins with a line end, because LoadGen may have left a line open.
  os.write(1, f'\n{line}'.encode())


def parse(line: str) -> RunStatus | None:
  """Returns the status in a line, or None if the line has none."""
  if not line.startswith(_MARK):
    return None
  return msgspec.json.decode(line[len(_MARK) :], type=RunStatus)
