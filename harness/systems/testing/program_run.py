"""Runs a system's LoadGen program in tests, as the harness does."""

from collections.abc import Mapping
import dataclasses
import json
import os
import subprocess

import numpy as np

from harness.loadgen import loadgen_log
from harness.loadgen import run as run_lib
from harness.loadgen import settings as settings_lib
from serve import programs


@dataclasses.dataclass(frozen=True)
class Outcome:
  """The result of a program.

  Attributes:
    code: The exit code.
    status: The last status line of the program.
    stray: The lines of standard output that are neither empty nor a status.
    errors: The text of standard error.
    directory: The directory with the logs.
  """

  code: int
  status: run_lib.RunStatus
  stray: list[str]
  errors: str
  directory: str

  @property
  def log(self) -> loadgen_log.RunLog:
    return loadgen_log.read(self.directory)

  @property
  def times(self) -> list[loadgen_log.Times]:
    return loadgen_log.read_timeline(
      os.path.join(self.directory, loadgen_log.TIMELINE)
    )

  @property
  def answers(self) -> dict[int, list[int]]:
    """The token ids of an accuracy run, by sample index."""
    path = os.path.join(self.directory, loadgen_log.ACCURACY_LOG)
    with open(path, encoding='utf-8') as file:
      entries = json.load(file)
    return {
      entry['qsl_idx']: np.frombuffer(
        bytes.fromhex(entry['data']), np.int64
      ).tolist()
      for entry in entries
    }


def run(
  program: str,
  mode: str,
  settings: settings_lib.RunSettings,
  directory: str,
  flags: Mapping[str, object],
  *more: str,
) -> Outcome:
  """Runs a program to its end.

  Args:
    program: The path of the program in the repository, without suffix.
    mode: The mode, "accuracy" or "performance".
    settings: The settings of the run.
    directory: An empty directory for settings and logs.
    flags: The program's own flags.
    *more: The remaining arguments, such as flags that are given several times.
  """
  user_conf = os.path.join(directory, 'user.conf')
  with open(user_conf, 'w', encoding='utf-8') as file:
    file.write(settings.user_conf)
  command = programs.command(
    program,
    {
      'benchmark': settings.benchmark.name,
      'scenario': settings.scenario,
      'mode': mode,
      'user_conf': user_conf,
      'loadgen_attributes': json.dumps(dict(settings.attributes)),
      'buffer_count': settings.buffer_count,
      'output_dir': directory,
      'timeline': os.path.join(directory, loadgen_log.TIMELINE),
      'concurrency': 64,
      'silence_secs': 600,
      'sample_count': settings.sample_count,
      **flags,
    },
  )
  done = subprocess.run(
    [*command.argv, *more],
    env=dict(command.env),
    capture_output=True,
    text=True,
    check=False,
  )
  lines = done.stdout.splitlines()
  states = [s for line in lines if (s := run_lib.parse(line))]
  return Outcome(
    done.returncode,
    states[-1] if states else run_lib.RunStatus(),
    [line for line in lines if line and not run_lib.parse(line)],
    done.stderr,
    directory,
  )
