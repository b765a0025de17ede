"""PAX checkpoints that are made once and kept: converted, and quantized."""

from collections.abc import Callable
import dataclasses
import hashlib
import json
import os

from serve import programs

_ID_LETTERS = 12
_PARTIAL = '.partial'


@dataclasses.dataclass(frozen=True)
class Wanted:
  """A checkpoint to be had.

  Attributes:
    base: Hugging Face directory of the GPT-J.
    dtype: type of the variables, float32 or bfloat16.
    quantize: whether matrices shall be int8: those of --quantization_configs
      gptj, which the published serving params expect. The head is none of them.
    calibration: articles to calibrate on; None: none.
  """

  base: str
  dtype: str = 'float32'
  quantize: bool = False
  calibration: str | None = None


class PaxModels:
  """The checkpoints below a directory, one for each `Wanted`."""

  def __init__(self, root: str, run: Callable[[str, programs.Command], None]):
    """Makes nothing yet.

    Args:
      root: directory for them, which need not exist.
      run: runs a command of that name to its end, or raises.
    """
    self._root = root
    self._run = run

  def get(self, wanted: Wanted) -> str:
    """The directory of a checkpoint, which is made if it is not there.

    What an interrupted run has left is gone on with.

    Raises:
      FileNotFoundError: there is no config.json in `wanted.base`.
      errors.HarnessError: the converter or the quantizer failed.
    """
    path = self._path(wanted)
    if os.path.isdir(path):
      return path
    if wanted.quantize:
      source = self.get(dataclasses.replace(wanted, quantize=False))
      self._run('quantizer', _quantizer(wanted, source, path + _PARTIAL))
    else:
      self._run('converter', _converter(wanted, path + _PARTIAL))
    os.rename(path + _PARTIAL, path)
    return path

  def _path(self, wanted: Wanted) -> str:
    what = 'int8' if wanted.quantize else wanted.dtype
    return os.path.join(self._root, f'gptj-pax-{what}_{_key(wanted)}')


def _key(wanted: Wanted) -> str:
  """Hexadecimal digits: the same for the same files and options."""
  files = {}
  for path in (wanted.base, wanted.calibration):
    if path is not None:
      files[os.path.realpath(path)] = _state(path)
  options = dataclasses.asdict(wanted)
  if not wanted.quantize:
    options['calibration'] = None
    files = {
      os.path.realpath(wanted.base): files[os.path.realpath(wanted.base)]
    }
  del options['base']
  text = json.dumps([files, options], sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()[:_ID_LETTERS]


def _state(path: str) -> list[tuple[str, int, int]]:
  """Name, size and time of each file: weights are too large to be hashed."""
  if os.path.isfile(path):
    names = ['']
  else:
    names = sorted(os.listdir(path))
    if 'config.json' not in names:
      raise FileNotFoundError(
        f'{path} holds no config.json; give the Hugging Face directory of a'
        ' GPT-J'
      )
  found = []
  for name in names:
    stat = os.stat(os.path.join(path, name) if name else path)
    found.append((name, stat.st_size, stat.st_mtime_ns))
  return found


def _converter(wanted: Wanted, target: str) -> programs.Command:
  return programs.command(
    programs.CONVERTER,
    {
      'base': wanted.base,
      'pax': target,
      'dtype': wanted.dtype,
      'resume': os.path.isdir(target),
    },
  )


def _quantizer(wanted: Wanted, source: str, target: str) -> programs.Command:
  return programs.command(
    programs.QUANTIZER,
    {
      'input_dir': source,
      'output_dir': target,
      'calibration': wanted.calibration,
      'resume': os.path.isdir(target),
    },
  )
