"""What is kept of a job: one JSON file beside its logs.

A job's directory holds

    result.json                 the Entry
    report.md                   the report that the user saw
    user.conf
    accuracy/                   LoadGen's logs and accuracy.txt
    performance/run_1/          LoadGen's logs
    timeline/<mode>.csv         times of every sample (harness.loadgen.timeline)
    logs/                       output of the processes

and is enough to score it again, to draw pages of it and to submit it.
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
# Among the notes: params and overrides of a model that a running cell served,
# which the parameters of a job do not name.
SERVED = 'served'
_FORMAT = 1
_ID_LETTERS = 12

# Whole numbers stay whole in the file.
Number = int | float


@dataclasses.dataclass(frozen=True)
class Accuracy:
  """An accuracy run, scored.

  Attributes:
    metrics: The figures by name, as the reference's evaluation calls them:
      rouge1, rouge2, rougeL, gen_len, gen_num, or exact_match, f1. None if one
      could not be computed.
    line: what accuracy.txt holds.
    reference: the same of a recorded reference; None without one.
    identical: samples answered as the reference answers them.
    passed: whether the run passed beside that reference; True without one.
    seconds: from the first sample issued to the last answered.
  """

  metrics: Mapping[str, Any]
  line: str
  reference: Mapping[str, Any] | None = None
  identical: int = 0
  passed: bool = True
  seconds: Number = 0.0


@dataclasses.dataclass(frozen=True)
class Performance:
  """A performance run.

  Attributes:
    valid: whether LoadGen calls it valid, without any error.
    metric: what `value` is: samples_per_second (Offline), queries_per_second
      (Server, completed), latency_ns (SingleStream 90th, MultiStream 99th
      percentile).
    value: the scenario's figure.
    seconds: from the first issue to the last answer.
    samples: samples answered.
    tokens_per_second: generated tokens; None where a system generates none.
    latency_ns: by percentile ("50.00", "90.00", "99.00", ...), as LoadGen says.
    first_token_ns: the same of the time to the first token, where it is known.
    early_stopping_ns: LoadGen's early-stopping estimate of the percentile that
      is `value`, which is what official results show (SingleStream,
      MultiStream); None where there is none.
    summary: mlperf_log_summary.txt.
  """

  valid: bool
  metric: str
  value: Number
  seconds: Number
  samples: int
  tokens_per_second: Number | None = None
  latency_ns: Mapping[str, Number] = dataclasses.field(default_factory=dict)
  first_token_ns: Mapping[str, Number] = dataclasses.field(default_factory=dict)
  early_stopping_ns: Number | None = None
  summary: str = ''


@dataclasses.dataclass(frozen=True)
class Entry:
  """A finished job.

  Attributes:
    benchmark: LoadGen's name: gptj or bert.
    model: as it is submitted: gptj-99, gptj-99.9, bert-99, bert-99.9.
    scenario: LoadGen's name.
    round: such as "v4.0".
    system: kind of system that answered: cell, reference, engine, network,
      onnxruntime, pytorch.
    parameters: all that decides the result, by flag name; with the fields
      above they make the entry's id.
    command: what the user typed, word by word.
    began: when the job began, ISO 8601 in UTC.
    ended: when it ended.
    versions: version by package, and "commit" of the repository if known.
    hashes: SHA-256 by what was read: dataset, tokenizer, checkpoint, ...
    description: the official system description (systems/<name>.json).
    governor: the CPU's frequency governor; None where it cannot be read.
    accuracy: None if it was not run.
    performance: None if it was not run.
    energy: joules by meter during the performance run, such as {"rapl": 12.5};
      empty where none can be read.
    notes: other things worth keeping, by name.
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
    """Twelve hexadecimal digits; the same parameters have the same."""
    return make_id(
      self.benchmark,
      self.model,
      self.scenario,
      self.round,
      self.system,
      self.parameters,
    )

  def write(self, directory: str) -> str:
    """Writes result.json, whole or not at all, and returns its path.

    Raises:
      OSError: it cannot be written.
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
  """The id of the entry that a job with these parameters makes."""
  key = [benchmark, model, scenario, round_name, system, parameters]
  text = json.dumps(key, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()[:_ID_LETTERS]


def now() -> str:
  """The time as entries tell it."""
  return datetime.datetime.now(datetime.UTC).isoformat(timespec='seconds')


def read(directory: str) -> Entry:
  """Reads a job's result.json.

  Raises:
    FileNotFoundError: there is none.
    ValueError: it is of another format, or no entry at all.
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
      f'{path} has format {version}, this program reads {_FORMAT}; use the'
      ' version of the harness that wrote it, or run the job anew'
    )
  try:
    return msgspec.convert(record, Entry)
  except msgspec.ValidationError as error:
    raise ValueError(f'{path} is no result of the harness: {error}') from error
