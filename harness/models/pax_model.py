"""Prints the directory of a PAX checkpoint, made once and kept in the cache.

  bazel run //harness/models:pax_model -- --base=gpt-j [--quantize]

converts a Hugging Face GPT-J to PAX and quantizes it if asked. If the cache
holds the checkpoint of the same files and options, nothing is made. The last
printed line is a value for --checkpoint of the scenario programs and for
saxutil publish.
"""

from collections.abc import Callable, Sequence
import dataclasses
import hashlib
import json
import os
import tempfile

from absl import flags

from harness import errors
from harness.benchmarks import gptj
from harness.caching import cache as cache_lib
from saxml_ext.common import flag_rules
from saxml_ext.common import program
from saxml_ext.common import user_path
from serve import children
from serve import programs
from serve import progress as progress_lib

_ID_LETTERS = 12
_PARTIAL = '.partial'


@dataclasses.dataclass(frozen=True)
class Recipe:
  """Describes a checkpoint to make.

  Attributes:
    base: The Hugging Face directory of the GPT-J.
    dtype: The type of the variables, float32 or bfloat16.
    quantize: True if matrices become int8. They are the matrices of
      --quantization_configs gptj, which the published serving params expect.
      The head is not one of them.
    calibration: The file of articles to calibrate on; None: no calibration.
  """

  base: str
  dtype: str = 'float32'
  quantize: bool = False
  calibration: str | None = None


class PaxModels:
  """The checkpoints below a directory, one for each `Recipe`."""

  def __init__(self, root: str, run: Callable[[str, programs.Command], None]):
    """Stores the directory and the runner; creates no checkpoint yet.

    Args:
      root: The directory of the checkpoints, which does not have to exist.
      run: The function that runs a named command to its end, or raises.
    """
    self._root = root
    self._run = run

  def get(self, recipe: Recipe) -> str:
    """Returns the directory of a checkpoint and creates it if it is missing.

    The work of an interrupted run is continued.

    Raises:
      FileNotFoundError: `wanted.base` has no config.json.
      errors.HarnessError: The converter or the quantizer failed.
    """
    path = self._path(recipe)
    if os.path.isdir(path):
      return path
    if recipe.quantize:
      source = self.get(dataclasses.replace(recipe, quantize=False))
      self._run('quantizer', _quantizer(recipe, source, path + _PARTIAL))
    else:
      self._run('converter', _converter(recipe, path + _PARTIAL))
    os.rename(path + _PARTIAL, path)
    return path

  def _path(self, recipe: Recipe) -> str:
    what = 'int8' if recipe.quantize else recipe.dtype
    return os.path.join(self._root, f'gptj-pax-{what}_{_key(recipe)}')


def _key(recipe: Recipe) -> str:
  """Returns a hexadecimal key that is equal for equal files and options."""
  files = {}
  for path in (recipe.base, recipe.calibration):
    if path is not None:
      files[os.path.realpath(path)] = _state(path)
  options = dataclasses.asdict(recipe)
  if not recipe.quantize:
    options['calibration'] = None
    files = {
      os.path.realpath(recipe.base): files[os.path.realpath(recipe.base)]
    }
  del options['base']
  text = json.dumps([files, options], sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()[:_ID_LETTERS]


def _state(path: str) -> list[tuple[str, int, int]]:
  """Returns the name, size and modification time of each file.

  Hashes of the contents are not used, because weights are too large for them.
  """
  if os.path.isfile(path):
    names = ['']
  else:
    names = sorted(os.listdir(path))
    if 'config.json' not in names:
      raise FileNotFoundError(
        f'{path} has no config.json. Pass the Hugging Face directory of a'
        ' GPT-J.'
      )
  entries = []
  for name in names:
    stat = os.stat(os.path.join(path, name) if name else path)
    entries.append((name, stat.st_size, stat.st_mtime_ns))
  return entries


def _converter(recipe: Recipe, target: str) -> programs.Command:
  return programs.command(
    programs.CONVERTER,
    {
      'base': recipe.base,
      'pax': target,
      'dtype': recipe.dtype,
      'resume': os.path.isdir(target),
    },
  )


def _quantizer(recipe: Recipe, source: str, target: str) -> programs.Command:
  return programs.command(
    programs.QUANTIZER,
    {
      'input_dir': source,
      'output_dir': target,
      'calibration': recipe.calibration,
      'resume': os.path.isdir(target),
    },
  )


_BASE = flags.DEFINE_string(
  'base',
  None,
  'The Hugging Face directory of the GPT-J. Default: the bundled one.',
)
_DTYPE = flags.DEFINE_enum(
  'dtype', 'float32', ['float32', 'bfloat16'], 'The type of the variables.'
)
_QUANTIZE = flags.DEFINE_bool(
  'quantize',
  False,
  'Quantize matrices to int8, as the published serving params expect. The head'
  ' is not quantized.',
)
_CALIBRATION = flags.DEFINE_string(
  'calibration',
  None,
  'The file of articles for calibration, in the schema of'
  ' cnn_dailymail_calibration.json.',
)
flag_rules.act_only('with --quantize', lambda: _QUANTIZE.value, 'calibration')


def main(argv: Sequence[str]) -> None:
  del argv
  progress = progress_lib.Progress()
  recipe = Recipe(
    user_path.resolve(_BASE.value) or gptj.BUNDLE.model,
    _DTYPE.value,
    _QUANTIZE.value,
    user_path.resolve(_CALIBRATION.value),
  )
  with program.exit_on('pax_model', (errors.HarnessError, OSError, ValueError)):
    with tempfile.TemporaryDirectory() as logs, children.Children() as group:

      def run(name: str, command: programs.Command) -> None:
        progress.stage(f'running the {name}')
        group.run(name, command, os.path.join(logs, f'{name}.log'))

      models = PaxModels(cache_lib.get().create().models, run)
      print(models.get(recipe))


if __name__ == '__main__':
  program.run(main)
