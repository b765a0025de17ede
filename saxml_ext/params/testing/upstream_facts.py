"""Records of the serving params of upstream Saxml.

Each file in `upstream/` records one source: the attributes of its serving
template, and the changes of each class, as Python resolves them. Types are
recorded by their names. A program that imported the sources wrote the files,
except for inference-v3.1.json and r1.2.0-lm-cloud.json. These were written by
hand from sources that cannot be imported.
"""

from collections.abc import Mapping
import dataclasses
import json
import pathlib
from typing import Any

_FOLDER = pathlib.Path(__file__).parent / 'upstream'


@dataclasses.dataclass(frozen=True)
class Class:
  """A servable class.

  Attributes:
    base: The class from which it derives; None for the template.
    quantized: True if it serves an int8 checkpoint.
    changes: The attributes whose values differ from those of the base.
    attributes: All attributes, including those of the template.
  """

  base: str | None
  quantized: bool
  changes: Mapping[str, Any]
  attributes: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Source:
  """One release, commit or submission.

  Attributes:
    name: The name of its file.
    compiler_options: The flags with which every class is compiled.
    template: The attributes of the serving template, with their defaults.
    classes: The servable classes by name, including those that it extends.
  """

  name: str
  compiler_options: Mapping[str, str]
  template: Mapping[str, Any]
  classes: Mapping[str, Class]


def load(name: str) -> Source:
  """Reads a source by the name of its file in `upstream/`, without extension.

  Raises:
    FileNotFoundError: There is no record of that name.
  """
  recorded = json.loads((_FOLDER / f'{name}.json').read_text())
  if 'extends' in recorded:
    extended = load(recorded['extends'])
    options, template = extended.compiler_options, extended.template
    classes = dict(extended.classes)
  else:
    options, template = recorded['compiler_options'], recorded['template']
    classes = {}
  for label, facts in recorded['classes'].items():
    base = facts['base']
    inherited = template if base is None else classes[base].attributes
    changes = facts['attributes']
    classes[label] = Class(
      base, facts['quantized'], changes, {**inherited, **changes}
    )
  return Source(name, options, template, classes)
