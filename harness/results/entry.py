"""Defines the record of a finished job: one JSON file next to its logs.

A job's directory holds

    result.json                 the Entry
    report.md                   the report that the user saw
    user.conf
    accuracy/                   LoadGen's logs and accuracy.txt
    performance/run_1/          LoadGen's logs
    timeline/<mode>.csv         times of every sample (loadgen_log.Times)
    logs/                       output of the processes

These files are enough to score the job again, to draw its pages and to submit
it.
"""

from collections.abc import Mapping
import dataclasses
import datetime
import hashlib
import json
import os
from typing import Any

import msgspec

from saxml_ext.common import files

FILE = 'result.json'
# Key of the notes with the params and overrides of a model that a running cell
# served. The parameters of a job do not contain them.
SERVED = 'served'
_FORMAT = 1
_ID_LETTERS = 12

# Integers stay integers in the file.
Number = int | float


@dataclasses.dataclass(frozen=True)
class Accuracy:
  """The scores of an accuracy run.

  Attributes:
    metrics: The figures, by their name in the reference's evaluation: rouge1,
      rouge2, rougeL, gen_len and gen_num, or exact_match and f1. A figure is
      None if it could not be computed.
    line: The line in accuracy.txt.
    reference: The figures of a recorded reference, or None without one.
    identical: The number of answers that are identical to the reference's.
    passed: True if the run passed the comparison with the reference, or if
      there is no reference.
    seconds: The time from the first issued sample to the last answer.
  """

  metrics: Mapping[str, Any]
  line: str
  reference: Mapping[str, Any] | None = None
  identical: int = 0
  passed: bool = True
  seconds: Number = 0.0


@dataclasses.dataclass(frozen=True)
class Performance:
  """The figures of a performance run.

  Attributes:
    valid: True if LoadGen judged the run valid and logged no error.
    metric: The name of the figure in `value`: samples_per_second (Offline),
      queries_per_second (Server; completed queries) or latency_ns
      (SingleStream: 90th percentile; MultiStream: 99th percentile).
    value: The scenario's figure.
    seconds: The time from the first issued sample to the last answer.
    samples: The number of answered samples.
    tokens_per_second: The generated tokens per second, or None if the system
      generates no tokens.
    latency_ns: The latencies that LoadGen logged, by percentile ("50.00",
      "90.00", "99.00", ...).
    first_token_ns: The times to the first token, by percentile; empty if
      unknown.
    per_token_ns: The times per output token after the first, by percentile;
      empty if LoadGen did not measure them.
    mean_first_token_ns: The mean time to the first token, as LoadGen measured
      it; None if it did not.
    mean_per_token_ns: The mean time per output token after the first.
    early_stopping_ns: LoadGen's early-stopping estimate of the percentile in
      `value`. Official results show this estimate (SingleStream, MultiStream).
      None if there is no estimate.
    summary: The content of mlperf_log_summary.txt.
  """

  valid: bool
  metric: str
  value: Number
  seconds: Number
  samples: int
  tokens_per_second: Number | None = None
  latency_ns: Mapping[str, Number] = dataclasses.field(default_factory=dict)
  first_token_ns: Mapping[str, Number] = dataclasses.field(default_factory=dict)
  per_token_ns: Mapping[str, Number] = dataclasses.field(default_factory=dict)
  mean_first_token_ns: Number | None = None
  mean_per_token_ns: Number | None = None
  early_stopping_ns: Number | None = None
  summary: str = ''


@dataclasses.dataclass(frozen=True)
class Entry:
  """A finished job.

  Attributes:
    benchmark: LoadGen's name of the benchmark.
    model: The name of the model in submissions: gptj-99, gptj-99.9, bert-99 or
      bert-99.9.
    scenario: LoadGen's name of the scenario.
    round: The MLPerf round, such as "v4.0".
    system: The kind of system under test: cell, reference, engine, network,
      onnxruntime or pytorch.
    parameters: All settings that affect the result, by flag name. The entry's
      id is computed from these and the fields above.
    command: The words of the command that the user entered.
    began: The start time of the job, as ISO 8601 in UTC.
    ended: The end time of the job, as ISO 8601 in UTC.
    versions: The version of each package, and the "commit" of the repository if
      it is known.
    hashes: The SHA-256 of each input: dataset, tokenizer, checkpoint, ...
    description: The official system description (systems/<name>.json).
    governor: The CPU's frequency governor, or None if it cannot be read.
    accuracy: The scores of the accuracy run, or None if it was not run.
    performance: The figures of the performance run, or None if it was not run.
    energy: The joules that each meter counted during the performance run, such
      as {"rapl": 12.5}; empty if no meter can be read.
    notes: Other values to keep, by name.
  """

  benchmark: str
  model: str
  scenario: str
  round: str
  system: str
  parameters: Mapping[str, Any]
  command: tuple[str, ...]
  began: str
  ended: str
  versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
  hashes: Mapping[str, str] = dataclasses.field(default_factory=dict)
  description: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  governor: str | None = None
  accuracy: Accuracy | None = None
  performance: Performance | None = None
  energy: Mapping[str, Number] = dataclasses.field(default_factory=dict)
  notes: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  @property
  def id(self) -> str:
    """The id: 12 hexadecimal digits, computed from the parameters."""
    return make_id(
      self.benchmark,
      self.model,
      self.scenario,
      self.round,
      self.system,
      self.parameters,
    )

  def write(self, directory: str) -> str:
    """Writes result.json atomically and returns its path.

    Raises:
      OSError: The file cannot be written.
    """
    path = os.path.join(directory, FILE)
    head = {'format': _FORMAT, 'id': self.id}
    files.write_json(path, head | dataclasses.asdict(self))
    return path


def make_id(
  benchmark: str,
  model: str,
  scenario: str,
  round_name: str,
  system: str,
  parameters: Mapping[str, Any],
) -> str:
  """Returns the id of the entry that a job with these parameters creates."""
  key = [benchmark, model, scenario, round_name, system, parameters]
  text = json.dumps(key, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()[:_ID_LETTERS]


def now() -> str:
  """Returns the current time in the format of the entries."""
  return datetime.datetime.now(datetime.UTC).isoformat(timespec='seconds')


def read(directory: str) -> Entry:
  """Reads a job's result.json.

  Raises:
    FileNotFoundError: There is no result.json.
    ValueError: The file has another format, or is not an entry.
  """
  path = os.path.join(directory, FILE)
  try:
    record: dict[str, Any] = files.read_json(path, dict[str, Any])
    version = record['format']
  except (KeyError, ValueError) as error:
    raise ValueError(f'{path} is no result of the harness: {error!r}') from (
      error
    )
  if version != _FORMAT:
    raise ValueError(
      f'{path} has format {version}, but this program reads format {_FORMAT}.'
      ' Use the version of the harness that wrote it, or run the job again'
    )
  try:
    return msgspec.convert(record, Entry)
  except msgspec.ValidationError as error:
    raise ValueError(f'{path} is no result of the harness: {error}') from error


def hashes(inputs: Mapping[str, str]) -> dict[str, str]:
  """Returns the SHA-256 of the inputs on this machine, by role."""
  return {
    role: (tree_sha256(path) if os.path.isdir(path) else file_sha256(path))
    for role, path in inputs.items()
    if os.path.exists(path)
  }


def file_sha256(path: str) -> str:
  """Returns the SHA-256 of a file, as sha256sum prints it.

  Raises:
    OSError: The file cannot be read.
  """
  with open(path, 'rb') as file:
    return hashlib.file_digest(file, 'sha256').hexdigest()


def tree_sha256(directory: str) -> str:
  """Returns the SHA-256 of a directory, from its files' names and contents.

  This is the hash of the output of `sha256sum` for all files. The paths are
  relative to the directory and sorted in byte order. Empty directories, times
  and permissions have no effect.

  Raises:
    OSError: A file cannot be read.
    ValueError: The directory contains no file.
  """

  def fail(error: OSError) -> None:
    raise error

  paths = [
    os.path.relpath(os.path.join(parent, name), directory)
    for parent, _, names in os.walk(directory, onerror=fail)
    for name in names
  ]
  if not paths:
    raise ValueError(f'{directory} contains no file')
  digest = hashlib.sha256()
  for path in sorted(paths, key=os.fsencode):
    line = f'{file_sha256(os.path.join(directory, path))}  '
    digest.update(line.encode() + os.fsencode(path) + b'\n')
  return digest.hexdigest()
