"""The flag that every program with a cache shares."""

import os

from absl import flags

from harness.caching import cache
from saxml_ext.common import user_path

_CACHE_DIR = flags.DEFINE_string(
  'cache_dir',
  None,
  'Directory for data, models, compiled programs and results. Default:'
  f' ${user_path.CACHE}, else .cache in --results_dir if that is given, else'
  ' gptj_sax in $XDG_CACHE_HOME or ~/.cache.',
)


def get(results_dir: str | None = None) -> cache.Cache:
  """Returns the cache that the flag, the environment or the default names.

  Args:
    results_dir: The directory that the user chose for results, if any. If
      neither the flag nor the environment names a cache, it lies in there, so
      that nothing is written to the home directory.
  """
  named = _CACHE_DIR.value
  if results_dir and not named and not os.environ.get(user_path.CACHE):
    named = os.path.join(results_dir, '.cache')
  return cache.Cache(cache.root(named))
