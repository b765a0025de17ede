"""Command lines of this repository's own programs.

A child is started through the launcher that Bazel built for it, not as a module
on the path of the program that starts it: so it runs exactly as when a user
runs it by hand, with its own dependencies and no others. Where Bazel has built
no launcher (a plain checkout, a wheel), this Python runs the module.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import os
import sys

# In Bazel this file lies in the runfiles, whose layout is the repository's.
ROOT = os.path.abspath(
  os.path.join(os.path.dirname(os.path.abspath(__file__)), '..')
)

ADMIN_CONFIG = 'saxml_ext/admin/admin_config'
ADMIN_SERVER = 'saxml_ext/admin/admin_server'
MODEL_SERVER = 'saxml_ext/server/server'
GATEWAY = 'saxml_ext/http/gateway'
SAXUTIL = 'saxml_ext/client/saxutil'
SERVE = 'serve/main'
CONVERTER = 'converters/convert_hf'
QUANTIZER = 'converters/offline_quantize'
LOADGEN_RUN = 'harness/systems/cell_run'
SUBMISSION = 'harness/submission/submission'
REFERENCE_RUN = 'harness/systems/reference/reference_run'
ENGINE_RUN = 'harness/systems/engine/engine_run'
BERT_ONNXRUNTIME_RUN = 'harness/bert/loadgen_onnxruntime'
BERT_PYTORCH_RUN = 'harness/bert/loadgen_pytorch'

# Where Bazel has built none of these, this is a plain checkout or a wheel.
_IN_ANY_BUILD = (LOADGEN_RUN, MODEL_SERVER)


class ServeError(Exception):
  """The program cannot go on. The text says why, and where to look."""


@dataclasses.dataclass(frozen=True)
class Command:
  """The way to start a child: its arguments and its whole environment."""

  argv: tuple[str, ...]
  env: Mapping[str, str]


def command(
  program: str,
  flags: Mapping[str, object],
  env: Mapping[str, str] | None = None,
  words: Sequence[str] = (),
) -> Command:
  """Returns the command of one of this repository's programs.

  Args:
    program: its path in the repository, without suffix.
    flags: values by flag name; None leaves a flag out, a list repeats it.
    env: variables to set besides those of this process.
    words: The arguments that are no flags.

  Raises:
    ServeError: Bazel has built the calling program without this one.
  """
  environment = dict(os.environ)
  # Log lines must arrive as they happen.
  environment['PYTHONUNBUFFERED'] = '1'
  launcher = os.path.join(ROOT, program)
  if _is_launcher(launcher):
    prefix = [launcher]
    # The launcher makes its own; ours would add our dependencies to it.
    environment.pop('PYTHONPATH', None)
  elif any(_is_launcher(os.path.join(ROOT, built)) for built in _IN_ANY_BUILD):
    label = '//{0}:{2}'.format(*program.rpartition('/'))
    raise ServeError(
      f'{label} is no part of this build, so that it needs no more than it'
      ' must; //harness:main has it: use that program, with the same flags'
    )
  else:
    # -P: not the user's directory before ours.
    prefix = [sys.executable, '-P', '-m', program.replace('/', '.')]
    path = [ROOT, environment.get('PYTHONPATH', '')]
    environment['PYTHONPATH'] = os.pathsep.join(filter(None, path))
  environment.update(env or {})
  for name, value in flags.items():
    values = value if isinstance(value, list) else [value]
    prefix += [f'--{name}={each}' for each in values if each is not None]
  return Command((*prefix, *words), environment)


def _is_launcher(path: str) -> bool:
  return os.path.isfile(path) and os.access(path, os.X_OK)
