"""Runs the programs of a submission as a user does."""

from collections.abc import Mapping
import subprocess

from harness.submission import plan
from serve import programs

# Only a person knows these facts about a machine.
DESCRIPTION = """\
status: available
cooling: air
host_memory_configuration: 1x 24 GB
host_networking_topology: N/A
"""


def run(
  program: str, flags: Mapping[str, object], **env: str
) -> tuple[int, str]:
  """Runs a program of this repository.

  Args:
    program: The path of the program, without suffix.
    flags: The values of its flags.
    **env: More environment variables.

  Returns:
    The exit code and the output.
  """
  command = programs.command(
    program, flags, {plan.WORKSPACE: programs.ROOT, **env}
  )
  done = subprocess.run(
    command.argv,
    env=dict(command.env),
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
    check=False,
  )
  return done.returncode, done.stdout
