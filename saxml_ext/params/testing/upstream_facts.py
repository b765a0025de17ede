"""What is known of the serving params of upstream Saxml.

Each file in `upstream/` records one source: the attributes of its serving
template, and of each class what it changes, as Python resolves them. Types are
recorded by their names. The files were written by a program that imported the
sources themselves, except inference-v3.1.json and r1.2.0-lm-cloud.json, which
were written by hand from sources that do not import.
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
    base: the class that it derives from; None: the template.
    quantized: whether it serves an int8 checkpoint.
    changes: attributes with other values than the base's.
    attributes: all attributes, those of the template included.
  """

  base: str | None
  quantized: bool
  changes: Mapping[str, Any]
  attributes: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Source:
  """One release, commit or submission.

  Attributes:
    name: of its file.
    compiler_options: flags that every class is compiled with.
    template: attributes of the serving template, with their defaults.
    classes: name -> servable class; those that it extends included.
  """

  name: str
  compiler_options: Mapping[str, str]
  template: Mapping[str, Any]
  classes: Mapping[str, Class]


def load(name: str) -> Source:
  """Reads a source, the name of a file in `upstream/` without its ending.

  Raises:
    FileNotFoundError: there is no record of that name.
  """
  recorded = json.loads((_FOLDER / f'{name}.json').read_text())
  if 'extends' in recorded:
    extended = load(recorded['extends'])
    options, template = extended.compiler_options, extended.template
    classes = dict(extended.classes)
  else:
    options, template = recorded['compiler_options'], recorded['template']
    classes = {}
  for each, facts in recorded['classes'].items():
    base = facts['base']
    inherited = template if base is None else classes[base].attributes
    changes = facts['attributes']
    classes[each] = Class(
      base, facts['quantized'], changes, {**inherited, **changes}
    )
  return Source(name, options, template, classes)
