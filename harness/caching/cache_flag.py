"""The flag that every program with a cache shares."""

from absl import flags

from harness.caching import cache
from saxml_ext.common import cache_dir

_CACHE_DIR = flags.DEFINE_string(
  'cache_dir',
  None,
  'Directory for data, models, compiled programs and results. Default:'
  f' ${cache_dir.VARIABLE}, else gptj_sax in $XDG_CACHE_HOME or ~/.cache.',
)


def get() -> cache.Cache:
  """The cache that the flag, the environment or the default names."""
  return cache.Cache(cache.root(_CACHE_DIR.value))
