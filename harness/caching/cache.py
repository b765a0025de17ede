"""The cache directory of the harness, for files that are slow to make or fetch.

The cache is one directory with a folder for each kind of file. One flag moves
all of it to another disk, and one command shows its size.
"""

import dataclasses
import os

from absl import flags

from saxml_ext.common import files
from saxml_ext.common import user_path

KINDS = ('data', 'models', 'jax', 'programs', 'results', 'serve')
# The folders in which ./bazelw installs its files. Older versions used the
# second name.
_OF_BAZELW = ('bazelw', 'bazelisk')

# See https://bford.info/cachedir: backup programs skip a directory that has
# this file. The second line distinguishes our caches from other caches.
TAG = 'CACHEDIR.TAG'
_SIGNATURE = 'Signature: 8a477f597d28d172789f06886806bc55'
_OWNER = '# The cache of gptj_sax (//harness:cache).'


def root(flag_value: str | None = None) -> str:
  """Returns the absolute path of the cache directory.

  Args:
    flag_value: The value of --cache_dir. None or '' stands for the default of
      user_path.default_cache.
  """
  if flag_value:
    return os.path.normpath(user_path.resolve(flag_value))
  return user_path.default_cache()


@dataclasses.dataclass(frozen=True)
class Cache:
  """A cache directory, which does not have to exist yet.

  Attributes:
    root: The absolute path of the directory.
  """

  root: str

  @property
  def data(self) -> str:
    """The folder of data sets in the format that the harness reads."""
    return self.folder('data')

  @property
  def models(self) -> str:
    """The folder of checkpoints, tokenizers and vocabularies."""
    return self.folder('models')

  @property
  def jax(self) -> str:
    """The folder of programs that JAX has compiled."""
    return self.folder('jax')

  @property
  def results(self) -> str:
    """The folder of results of finished jobs."""
    return self.folder('results')

  def folder(self, kind: str) -> str:
    """Returns the folder of a kind.

    Raises:
      ValueError: The kind does not exist.
    """
    if kind not in KINDS:
      raise ValueError(
        f'no kind {kind!r} of files. Available: {", ".join(KINDS)}'
      )
    return os.path.join(self.root, kind)

  @property
  def is_ours(self) -> bool:
    """True if `create` has marked this directory as a cache of the harness."""
    try:
      with open(os.path.join(self.root, TAG), encoding='utf-8') as file:
        return file.read().splitlines()[:2] == [_SIGNATURE, _OWNER]
    except (FileNotFoundError, NotADirectoryError):
      return False

  def create(self) -> 'Cache':
    """Creates the folders, marks the directory as ours and returns this cache.

    Entries can later be removed only from a directory that has the mark.

    Raises:
      ValueError: The directory contains files of other programs.
      OSError: The directory cannot be written.
    """
    user_path.create_cache(self.root)
    if not self.is_ours:
      others = sorted(set(os.listdir(self.root)) - {*KINDS, *_OF_BAZELW})
      if others:
        raise ValueError(
          f'{self.root} cannot become the cache, because {others[0]!r} in it'
          ' is not part of a cache. Choose an empty directory (--cache_dir or'
          f' ${user_path.CACHE})'
        )
      path = os.path.join(self.root, TAG)
      with files.replacing(path) as file:
        file.write(f'{_SIGNATURE}\n{_OWNER}\n')
    for kind in KINDS:
      user_path.create_cache(self.folder(kind))
    return self


_CACHE_DIR = flags.DEFINE_string(
  'cache_dir',
  None,
  'The directory for data, models, compiled programs and results. Default:'
  f' ${user_path.CACHE}, else .cache in --results_dir if that is given, else'
  ' gptj_sax in $XDG_CACHE_HOME or ~/.cache.',
)


def get(results_dir: str | None = None) -> Cache:
  """Returns the cache that the flag, the environment or the default names.

  Args:
    results_dir: The directory that the user chose for results; None: the user
      chose none. If neither the flag nor the environment names a cache, the
      cache is created in this directory. The home directory then stays
      untouched.
  """
  named = _CACHE_DIR.value
  if results_dir and not named and not os.environ.get(user_path.CACHE):
    named = os.path.join(results_dir, '.cache')
  return Cache(root(named))
