"""The rules of flags that act only together with other flags.

A module that defines such flags declares their rule beside them. The programs
refuse flags that the user gives where they have no effect (`program.run`).
"""

from collections.abc import Callable, Iterable
import dataclasses

from absl import flags


@dataclasses.dataclass(frozen=True)
class Rule:
  """A condition without which flags have no effect.

  Attributes:
    where: The condition in words, after "acts only", such as "with --logits".
    holds: Returns whether the condition is met, once the flags are parsed.
    names: The names of the flags.
  """

  where: str
  holds: Callable[[], object]
  names: tuple[str, ...]


_rules: list[Rule] = []


def act_only(where: str, holds: Callable[[], object], *names: str) -> None:
  """Declares that flags act only where a condition holds; see `Rule`."""
  _rules.append(Rule(where, holds, names))


def rules() -> tuple[Rule, ...]:
  """Returns the rules of the modules that are imported."""
  return tuple(_rules)


def given(
  names: Iterable[str], values: flags.FlagValues = flags.FLAGS
) -> list[str]:
  """Returns those of the flags `names` that exist and that the user gives."""
  return [
    name
    for name in names
    if name in values
    and (values[name].present or not values[name].using_default_value)
    and values[name].value is not None
  ]


def problems() -> list[str]:
  """Returns a sentence for each flag that is given and has no effect."""
  return [
    f'{" ".join(flag.serialize().split())} has no effect: it acts only'
    f' {rule.where}. Change that, or leave --{name} out.'
    for rule in _rules
    for name in given(rule.names)
    # An empty value, of a script's unset variable, asks for nothing.
    if (flag := flags.FLAGS[name]).value not in ('', []) and not rule.holds()
  ]
