"""Builds the command lines of this repository's programs.

A child is started through the launcher that Bazel built for it, not as a module
on the path of its parent. It therefore runs exactly as if a user starts it,
with only its own dependencies. If Bazel has built no launcher (in a plain
checkout or a wheel), this Python runs the module.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import os
import sys

from saxml_ext.common import user_path

# In Bazel, this file is in the runfiles, which have the repository's layout.
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

# The values of --quantize of `serve`.
NUMBER_FORMATS = FLOAT, INT8, INT4, FP8 = 'none', 'int8', 'int4', 'fp8'
# The directory of each bundled model below harness/bundled.
BUNDLED = {'gptj-small': '', 'llama-small': 'llama'}

# If Bazel has built none of these, this is a plain checkout or a wheel.
_IN_ANY_BUILD = (LOADGEN_RUN, MODEL_SERVER)


class ServeError(Exception):
  """An error that ends the program. The message has the reason and a hint."""


@dataclasses.dataclass(frozen=True)
class Command:
  """The command of a child: its arguments and its whole environment."""

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
    program: The path in the repository, without suffix.
    flags: The values by flag name; None leaves a flag out, and a list repeats
      it.
    env: The variables to set in addition to those of this process.
    words: The arguments that are not flags.

  Raises:
    ServeError: Bazel has built the calling program without this one.
  """
  environment = dict(os.environ)
  # Log lines must arrive without delay.
  environment['PYTHONUNBUFFERED'] = '1'
  launcher = os.path.join(ROOT, program)
  if _is_launcher(launcher):
    prefix = [launcher]
    # The launcher sets its own path; ours would add our dependencies to it.
    environment.pop('PYTHONPATH', None)
  elif any(_is_launcher(os.path.join(ROOT, built)) for built in _IN_ANY_BUILD):
    label = '//{0}:{2}'.format(*program.rpartition('/'))
    raise ServeError(
      f'{label} is not included in this program, to keep its build small. Run'
      ' //harness:main with the same flags instead'
    )
  else:
    # With -P, the user's directory does not come before ours on the path.
    prefix = [sys.executable, '-P', '-m', program.replace('/', '.')]
    path = [ROOT, environment.get('PYTHONPATH', '')]
    environment['PYTHONPATH'] = os.pathsep.join(filter(None, path))
  environment.update(env or {})
  for name, value in flags.items():
    values = value if isinstance(value, list) else [value]
    prefix += [f'--{name}={value}' for value in values if value is not None]
  return Command((*prefix, *words), environment)


def bundled(word: str) -> tuple[str, str] | None:
  """Returns the directory and the program set of a bundled model.

  Args:
    word: The name of the model, or anything else, for which the result is None.
  """
  if word not in BUNDLED or os.path.exists(user_path.resolve(word)):
    return None
  root = os.path.join(ROOT, 'harness', 'bundled', BUNDLED[word])
  built = os.path.join(root, 'pax')
  if not os.path.isdir(built):  # Outside of Bazel, nothing was built.
    return os.path.join(root, 'model'), ''
  return built, os.path.join(root, 'serve_programs')


def _is_launcher(path: str) -> bool:
  return os.path.isfile(path) and os.access(path, os.X_OK)
