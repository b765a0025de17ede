"""Defines rules for flags that have an effect only with other flags.

A module that defines such flags declares their rule beside them. Programs
reject such a flag if the user gives it where it has no effect (`program.run`).
"""

from collections.abc import Callable, Iterable, Sequence

from absl import flags

# Each rule has the condition in words, the condition, and the flag names.
_rules: list[tuple[str, Callable[[], object], list[str]]] = []
_words: Sequence[str] = ()


def act_only(where: str, holds: Callable[[], object], names: str) -> None:
  """Declares that flags have an effect only if a condition holds.

  Args:
    where: The condition in words, after "acts only", such as "with --logits".
    holds: A function that returns True if the condition is met. It is called
      after the flags are parsed.
    names: The names of the flags, separated by spaces.
  """
  _rules.append((where, holds, names.split()))


def command(default: str = '') -> str:
  """Returns the first word of the command line that is not a flag."""
  return _words[0] if _words else default


def given(
  names: Iterable[str], values: flags.FlagValues = flags.FLAGS
) -> list[str]:
  """Returns the flags in `names` that exist and that the user set."""
  return [
    name
    for name in names
    if name in values
    and (values[name].present or not values[name].using_default_value)
    and values[name].value is not None
  ]


def problems(words: Sequence[str] = ()) -> list[str]:
  """Returns a sentence for each flag that the user set without effect.

  Args:
    words: The words of the command line that are not flags.
  """
  global _words
  _words = words
  return [
    f'{" ".join(flag.serialize().split())} has no effect. It acts only'
    f' {where}. Change that, or omit --{name}.'
    for where, holds, names in _rules
    for name in given(names)
    # A script passes an empty value if its variable is not set.
    if (flag := flags.FLAGS[name]).value not in ('', []) and not holds()
  ]
