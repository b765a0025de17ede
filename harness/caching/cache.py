"""Where the harness keeps what it need not make or fetch twice.

One directory with a folder for each kind of thing, so that one setting moves
all of it to another disk and one command tells what takes the room there.
"""

import dataclasses
import os

from absl import flags

from saxml_ext.common import files
from saxml_ext.common import user_path

KINDS = ('data', 'models', 'jax', 'programs', 'results', 'serve')
# Where ./bazelw keeps what it installs; the second name is of older versions.
_OF_BAZELW = ('bazelw', 'bazelisk')

# https://bford.info/cachedir: programs that make backups leave out a directory
# with this file. The second line tells our caches from those of others.
TAG = 'CACHEDIR.TAG'
_SIGNATURE = 'Signature: 8a477f597d28d172789f06886806bc55'
_OWNER = '# The cache of gptj_sax (//harness:cache).'


def root(flag_value: str | None = None) -> str:
  """Returns the absolute path of the cache directory.

  Args:
    flag_value: The value of --cache_dir; None or '' if it is not given, which
      stands for saxml_ext.common.cache_dir's default.
  """
  if flag_value:
    return os.path.normpath(user_path.resolve(flag_value))
  return user_path.default_cache()


@dataclasses.dataclass(frozen=True)
class Cache:
  """A cache directory, which need not exist yet.

  Attributes:
    root: its absolute path.
  """

  root: str

  @property
  def data(self) -> str:
    """Data sets in the form that the harness reads."""
    return self.folder('data')

  @property
  def models(self) -> str:
    """Checkpoints, tokenizers and vocabularies."""
    return self.folder('models')

  @property
  def jax(self) -> str:
    """Programs that JAX has compiled."""
    return self.folder('jax')

  @property
  def results(self) -> str:
    """Results of finished jobs."""
    return self.folder('results')

  def folder(self, kind: str) -> str:
    """The folder of a kind.

    Raises:
      ValueError: there is no such kind.
    """
    if kind not in KINDS:
      raise ValueError(f'no kind {kind!r}; choose one of {", ".join(KINDS)}')
    return os.path.join(self.root, kind)

  @property
  def is_ours(self) -> bool:
    """Whether `create` has made this directory a cache of the harness."""
    try:
      with open(os.path.join(self.root, TAG), encoding='utf-8') as file:
        return file.read().splitlines()[:2] == [_SIGNATURE, _OWNER]
    except (FileNotFoundError, NotADirectoryError):
      return False

  def create(self) -> 'Cache':
    """Makes the folders and marks the directory as ours; returns this cache.

    The mark is what later allows to remove things from it.

    Raises:
      ValueError: the directory holds things of others.
      OSError: it cannot be written.
    """
    user_path.create_cache(self.root)
    if not self.is_ours:
      others = sorted(set(os.listdir(self.root)) - {*KINDS, *_OF_BAZELW})
      if others:
        raise ValueError(
          f'{self.root} cannot become the cache: it holds {others[0]!r}, which'
          f' is not of a cache; give an empty directory (--cache_dir or'
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
  'Directory for data, models, compiled programs and results. Default:'
  f' ${user_path.CACHE}, else .cache in --results_dir if that is given, else'
  ' gptj_sax in $XDG_CACHE_HOME or ~/.cache.',
)


def get(results_dir: str | None = None) -> Cache:
  """Returns the cache that the flag, the environment or the default names.

  Args:
    results_dir: The directory that the user chose for results, if any. If
      neither the flag nor the environment names a cache, it lies in there, so
      that nothing is written to the home directory.
  """
  named = _CACHE_DIR.value
  if results_dir and not named and not os.environ.get(user_path.CACHE):
    named = os.path.join(results_dir, '.cache')
  return Cache(root(named))
