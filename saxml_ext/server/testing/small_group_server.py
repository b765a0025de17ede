"""Runs the model server with the params of `small_model`, for groups.

Files in the directory --oddities change the behavior of this process:

- `fail` makes the preparation of a model fail.
- `slow` keeps the preparation of a model from finishing.
- `differ` makes it report another checkpoint.
- `hang` makes its engine hang until the file is deleted.
"""

import os
import time

from absl import flags

from saxml_ext.common import errors
from saxml_ext.common import program
from saxml_ext.server import server
from saxml_ext.server.lifecycle import cancellation
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.loading import loader
from saxml_ext.server.parallel import prepared as prepared_lib
from saxml_ext.server.testing import small_model  # noqa: F401 Registers.

_ODDITIES = flags.DEFINE_string(
  'oddities',
  '/nonexistent',
  'The directory of files that cause faults.',
)
_CALLS = flags.DEFINE_string(
  'calls', None, 'The file that gets a line for each call of an engine.'
)


class _NotingRunner:
  """An engine that logs its calls and results to a file."""

  def __init__(self, runner, path):
    self._runner = runner
    self._file = open(path, 'a', encoding='utf-8')  # noqa: SIM115

  def __getattr__(self, name):
    attribute = getattr(self._runner, name)
    if name not in ('prefill_and_insert', 'step', 'release', 'score'):
      return attribute

    def noted(*args):
      while _is_odd('hang'):
        time.sleep(0.05)
      result = attribute(*args)
      self._file.write(f'{name} {args} -> {result}\n')
      self._file.flush()
      return result

    return noted


class _Prepared:
  """A prepared model whose engine logs its calls."""

  def __init__(self, prepared: prepared_lib.Prepared):
    self.settings = prepared.settings
    self.codecs = prepared.codecs
    self.identity = dict(prepared.identity)
    if _is_odd('differ'):
      self.identity['checkpoint'] = 'other'
    self._prepared = prepared

  def start(self):
    return _NotingRunner(self._prepared.start(), _CALLS.value)


def _prepare(spec: entry_lib.Spec) -> _Prepared:
  if _is_odd('fail'):
    raise errors.InvalidArgument('there is no room on this disk')
  while _is_odd('slow'):
    cancellation.check()
    time.sleep(0.05)
  return _Prepared(loader.prepare(spec))


def _is_odd(name: str) -> bool:
  return os.path.exists(os.path.join(_ODDITIES.value, name))


if __name__ == '__main__':
  program.run(lambda argv: server.main(argv, prepare=_prepare))
