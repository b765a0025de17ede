"""The rules of flags that act only together with other flags.

A module that defines such flags declares their rule beside them. The programs
refuse flags that the user gives where they have no effect (`program.run`).
"""

from collections.abc import Callable, Iterable, Sequence

from absl import flags

# Condition in words, condition, and names of flags.
_rules: list[tuple[str, Callable[[], object], list[str]]] = []
_words: Sequence[str] = ()


def act_only(where: str, holds: Callable[[], object], names: str) -> None:
  """Declares that flags act only where a condition holds.

  Args:
    where: The condition in words, after "acts only", such as "with --logits".
    holds: Returns whether the condition is met, once the flags are parsed.
    names: The names of the flags, with spaces between them.
  """
  _rules.append((where, holds, names.split()))


def command(default: str = '') -> str:
  """Returns the first word of the command line that is no flag, for rules."""
  return _words[0] if _words else default


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


def problems(words: Sequence[str] = ()) -> list[str]:
  """Returns a sentence for each flag that is given and has no effect.

  Args:
    words: The words of the command line that are no flags.
  """
  global _words
  _words = words
  return [
    f'{" ".join(flag.serialize().split())} has no effect: it acts only'
    f' {where}. Change that, or leave --{name} out.'
    for where, holds, names in _rules
    for name in given(names)
    # An empty value, of a script's unset variable, asks for nothing.
    if (flag := flags.FLAGS[name]).value not in ('', []) and not holds()
  ]
