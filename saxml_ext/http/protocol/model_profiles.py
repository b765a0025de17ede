"""How requests to a model are read: its chat template and its defaults."""

from collections.abc import Callable, Mapping
import dataclasses
import json
import pathlib
from typing import Any

from saxml_ext.common import errors
from saxml_ext.common import user_path
from saxml_ext.http.protocol import checkpoint_templates
from saxml_ext.http.protocol import fields
from saxml_ext.http.protocol import problems
from saxml_ext.http.protocol import sampling
from saxml_ext.http.protocol import templates

Template = templates.Template | checkpoint_templates.CheckpointTemplate

# Name in generation_config.json -> parameter of a request.
_DEFAULTS = {
  'max_new_tokens': 'max_tokens',
  'temperature': 'temperature',
  'top_k': 'top_k',
  'top_p': 'top_p',
}
# vLLM applies these too. Values that ask for something are reported.
_NOT_APPLIED = {'min_p': 0, 'repetition_penalty': 1}


@dataclasses.dataclass(frozen=True)
class Profile:
  """How requests to a model are read.

  Attributes:
    template: The chat template of conversations without one of their own.
    defaults: The values of parameters that a request leaves out, by name.
  """

  template: Template = templates.TEMPLATES[templates.DEFAULT]
  defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)


# The name of a model, as the request has it -> how to read the request.
ProfileOf = Callable[[str | None], Profile]


def template(name: str) -> Template:
  """Returns the template of a name or of a path.

  Raises:
    errors.InvalidArgument: There is none.
  """
  if name in templates.TEMPLATES:
    return templates.TEMPLATES[name]
  path = user_path.resolve(name)
  if not pathlib.Path(path).exists():
    raise errors.InvalidArgument(
      f'{name!r} is neither a file nor one of {templates.known()}.'
    )
  return checkpoint_templates.load(path)


def generation_config(path: str) -> tuple[dict[str, Any], list[str]]:
  """Reads the defaults of a Hugging Face generation_config.json.

  Args:
    path: The file, or its directory.

  Returns:
    The defaults by parameter, and the settings that cannot be applied here.

  Raises:
    errors.InvalidArgument: It cannot be read, or a value is malformed.
  """
  file = pathlib.Path(user_path.resolve(path))
  if file.is_dir():
    file = file / 'generation_config.json'
  try:
    found = json.loads(file.read_text(encoding='utf-8'))
  except (OSError, ValueError) as e:
    raise errors.InvalidArgument(
      f'{file} cannot be read as a generation_config.json: {e}'
    ) from e
  if not isinstance(found, dict):
    raise errors.InvalidArgument(f'{file} is not a JSON object.')
  defaults = {
    parameter: found[name]
    for name, parameter in _DEFAULTS.items()
    if found.get(name) is not None
  }
  try:
    sampling.take(fields.Fields(defaults), 'max_tokens')
  except problems.BadRequest as e:
    raise errors.InvalidArgument(f'{file}: {e.message}') from e
  ignored = [
    f'{name}={found[name]}'
    for name, neutral in _NOT_APPLIED.items()
    if found.get(name) not in (None, neutral)
  ]
  return defaults, ignored
