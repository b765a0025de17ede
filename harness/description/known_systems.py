"""Descriptions of known systems, for those who run on one of them."""

from collections.abc import Mapping
import dataclasses
import json
import os
from typing import Any

from harness.description import fields

_DIRECTORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'presets')
_SUFFIX = '.json'

# The machine that the program runs on, described by what it tells itself.
THIS_MACHINE = 'this_machine'


@dataclasses.dataclass(frozen=True)
class Preset:
  """What is known of a system.

  Attributes:
    about: what it is, in a sentence.
    source: the published description that its values are from.
    whole: whether it says all that is known of the host too; else the host is
      this machine.
    values: by key of the description.
  """

  about: str
  source: str
  whole: bool
  values: Mapping[str, Any]


def names() -> list[str]:
  """Names of all presets, sorted."""
  found = [
    name.removesuffix(_SUFFIX)
    for name in os.listdir(_DIRECTORY)
    if name.endswith(_SUFFIX)
  ]
  return sorted([THIS_MACHINE, *found])


def read(name: str) -> Preset:
  """The preset of a name.

  Raises:
    ValueError: there is none.
  """
  if name not in names():
    raise ValueError(
      f'no system {name!r} is known; choose one of {", ".join(names())}, or'
      ' give --system_description=FILE'
    )
  if name == THIS_MACHINE:
    return Preset('the machine that this runs on', '', False, {})
  path = os.path.join(_DIRECTORY, name + _SUFFIX)
  with open(path, encoding='utf-8') as file:
    record = json.load(file)
  fields.check(record['values'])
  return Preset(**record)
