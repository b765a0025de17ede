"""Checks and converts models of other formats than PAX, and caches the result."""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import fcntl
import hashlib
import os
import shutil

import psutil

from converters.convert import conversion as conversion_lib
from converters.convert import model_source
from converters.convert import sources
from converters.hf import checkpoint
from converters.hf import hub
from converters.hf import tokenizer_files
from converters.quantize import int8_matrix
from saxml_ext.common import user_path
from saxml_ext.families import family as family_lib
from saxml_ext.families import hf_config
from saxml_ext.families import layout
from saxml_ext.pax import description
from saxml_ext.pax import errors as pax_errors
from serve import programs

# A function that runs a program of this repository to its end. The arguments
# are the name in messages, the path of the program and its flags.
Run = Callable[[str, str, Mapping[str, object]], None]

CHECKPOINT = 'checkpoint_00000000'
GIB = 2**30
FLOAT_BYTES = {'float32': 4, 'bfloat16': 2}


@dataclasses.dataclass(frozen=True)
class Source:
  """A model in another format than PAX, as far as its small files describe it.

  Attributes:
    path: The directory or the GGUF file. Of a model on the hub, it has at first
      only the small files.
    hub_id: The id of a model whose weights must be downloaded; '' for others.
    family: The family of the model.
    config: The sizes of the model.
    variables: The variables of the PAX checkpoint.
    tokenizer: The contents of the tokenizer's files by name.
    quantization: The types of weights of at most 8 bits, such as "Q4_1"; ''
      for floating point.
    stored_type: The type of the weights in floating point, such as 'bfloat16'.
      For a model on the hub, config.json says it.
  """

  path: str
  hub_id: str
  family: family_lib.Family
  config: hf_config.HFConfig
  variables: Sequence[layout.Variable]
  tokenizer: Mapping[str, bytes]
  quantization: str = ''
  stored_type: str = 'float32'

  def float_type(self, quantize: bool) -> str:
    """Returns the stored type, or bfloat16 if float32 needs half the memory."""
    if quantize:
      return 'float32'  # The most exact form is quantized only once.
    if self.stored_type == 'bfloat16':
      return 'bfloat16'
    room = psutil.virtual_memory().available / 2
    return 'float32' if self.num_bytes('float32') <= room else 'bfloat16'

  def num_bytes(self, dtype: str, quantize: bool = False) -> int:
    """Returns the size of the checkpoint, with int8 matrices or without."""
    return sum(
      variable.spec(
        'int8'
        if quantize and int8_matrix.summed_dims(variable.name, False)
        else dtype
      ).num_bytes
      for variable in self.variables
    )

  def describe(self, dtype: str) -> description.Description:
    """Returns the description of the converted checkpoint."""
    return conversion_lib.describe(self.config, self.family, dtype)


def open_source(word: str) -> Source:
  """Opens a model and checks everything but the values of its weights.

  Of a model on the hub, only the small files are downloaded.

  Args:
    word: The directory, the GGUF file, or the id on the hub.

  Raises:
    programs.ServeError: There is no such model, or it is not supported.
  """
  try:
    path = hub.locate(word, weights=False)
    if not os.path.exists(path):
      raise programs.ServeError(
        f'{path} is neither a directory nor a GGUF file nor a model id on the'
        ' Hugging Face hub. Pass a Hugging Face directory (config.json,'
        ' safetensors or .bin files), a GGUF file, a PAX directory, or an id'
        ' such as EleutherAI/gpt-j-6b.'
      )
    is_local = path == user_path.resolve(word) or hub.has_weights(path)
    source = _open(path, '' if is_local else word)
  except pax_errors.CheckpointError as e:
    raise programs.ServeError(str(e).replace('--base=', '')) from e
  names = (tokenizer_files.TOKENIZER, tokenizer_files.SENTENCEPIECE)
  if not any(name in source.tokenizer for name in names):
    raise programs.ServeError(
      f'{path} has neither {" nor ".join(names)}, which is required for'
      ' text. Make it with transformers:'
      f" AutoTokenizer.from_pretrained('...').save_pretrained('{path}')."
    )
  return source


def _open(path: str, hub_id: str) -> Source:
  tokenizer = tokenizer_files.collect(path)
  if hub_id:
    family, config = checkpoint.read_config(path)
    variables = layout.variables(config, config.tied_embeddings, family)
    document = checkpoint.read_json(os.path.join(path, 'config.json'))
    dtype = document.get('dtype') or document.get('torch_dtype') or 'float32'
    return Source(
      path,
      hub_id,
      family,
      config,
      variables,
      tokenizer,
      checkpoint.quantization(path),
      str(dtype),
    )
  model = model_source.ModelSource(sources.open_checkpoint(path))
  return Source(
    path,
    hub_id,
    model.checkpoint.family,
    model.config,
    model.variables,
    tokenizer,
    model.checkpoint.quantization,
    model.checkpoint.float_type,
  )


@dataclasses.dataclass(frozen=True)
class Job:
  """The conversion of one model to a PAX directory in the cache.

  Attributes:
    source: The model.
    name: The prefix of the directory's name.
    dtype: The type of floating-point variables.
    quantize: True to convert the matrices to int8.
    cache: The directory for converted models.
  """

  source: Source
  name: str
  dtype: str
  quantize: bool
  cache: str

  @property
  def num_bytes(self) -> int:
    """The size of the checkpoint."""
    return self.source.num_bytes(self.dtype, self.quantize)

  @property
  def missing_bytes(self) -> int:
    """The disk space that the conversion still needs."""
    target = self._target(self.source.path)
    if os.path.isdir(os.path.join(target, CHECKPOINT)):
      return 0
    # The files of an interrupted conversion are reused.
    return max(0, self.num_bytes - bytes_below(target))

  def _target(self, path: str) -> str:
    stamp = _stamp(path, self.dtype, str(self.quantize))
    return os.path.join(self.cache, f'{self.name}-{stamp}')

  def run(self, run: Run) -> str:
    """Returns the PAX directory; converts the model if there is none.

    An interrupted conversion is resumed.

    Args:
      run: The function that runs the converter.

    Raises:
      programs.ServeError: The download or the conversion failed.
    """
    path = self.source.path
    if self.source.hub_id:
      path = open_source(_download(self.source.hub_id)).path
    target = self._target(path)
    os.makedirs(self.cache, exist_ok=True)
    with open(f'{target}.lock', 'w', encoding='utf-8') as lock:
      # Another `serve` may be converting the model.
      fcntl.flock(lock, fcntl.LOCK_EX)
      if not os.path.isdir(os.path.join(target, CHECKPOINT)):
        choice = (
          {'quantize': 'int8'} if self.quantize else {'dtype': self.dtype}
        )
        flags = {'base': path, 'pax': target, 'resume': True, **choice}
        flags['compress'] = False
        run('converter', programs.CONVERTER, flags)
    return target


def _download(hub_id: str) -> str:
  try:
    return hub.locate(hub_id)
  except pax_errors.CheckpointError as e:
    raise programs.ServeError(str(e).replace('--base=', '')) from e


def check_disk(jobs: Sequence[Job]) -> None:
  """Raises programs.ServeError if the cache's disk is too small for all."""
  needed = sum(job.missing_bytes for job in jobs)
  if not needed:
    return
  cache = jobs[0].cache
  existing = cache
  while not os.path.isdir(existing):
    existing = os.path.dirname(existing)
  free = shutil.disk_usage(existing).free
  if needed > free:
    raise programs.ServeError(
      f'The converted models need {size_text(needed)}, and {cache} has'
      f' {size_text(free)} free. Free some space, or set a directory on another'
      ' disk with --cache_dir or $GPTJ_SAX_CACHE.'
    )


def size_text(num_bytes: int) -> str:
  """Returns a size such as "1.5 GiB", or "0.3 MiB" for a small model."""
  if num_bytes >= GIB:
    return f'{num_bytes / GIB:.1f} GiB'
  return f'{max(0, num_bytes) / 2**20:.1f} MiB'


def _stamp(path: str, *choices: str) -> str:
  """Returns a hash that changes with a file or the files of a directory."""
  lines = [os.path.realpath(path), *choices]
  files = [path]
  if os.path.isdir(path):
    files = sorted(entry.path for entry in os.scandir(path) if entry.is_file())
  for file in files:
    stat = os.stat(file)
    name = os.path.basename(file)
    lines.append(f'{name} {stat.st_size} {stat.st_mtime_ns}')
  return hashlib.sha256('\n'.join(lines).encode()).hexdigest()[:12]


def bytes_below(directory: str) -> int:
  """Returns the total size of the files in a directory, in bytes."""
  return sum(
    os.path.getsize(os.path.join(folder, file))
    for folder, _, files in os.walk(directory)
    for file in files
  )
