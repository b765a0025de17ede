"""Paths of checkpoints as users of the published tool type them."""

import os
import re

from saxml_ext.common import user_path

_STEP = re.compile(r'checkpoint_\d+')


def root_of(path: str) -> str:
  """The directory that holds, or will hold, a checkpoint's step.

  The published tool is given `<dir>/checkpoint_00000000/state`; here `<dir>`
  will do, and all three mean the same.
  """
  path = user_path.resolve(path).rstrip('/')
  if os.path.basename(path) == 'state':
    path = os.path.dirname(path)
  if _STEP.fullmatch(os.path.basename(path)):
    path = os.path.dirname(path)
  return path
