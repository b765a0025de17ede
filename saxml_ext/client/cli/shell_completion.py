"""Writes scripts that complete saxutil's command lines in a shell."""

from collections.abc import Mapping, Sequence

from saxml_ext.client.cli import command
from saxml_ext.client.cli import go_flags

SHELLS = ('bash', 'zsh', 'fish')

# Finds the command among the words before the cursor. Bash splits words at "=",
# so the value of a flag can be a word of its own.
_BASH = """\
_saxutil() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} command= last= word words
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    if [[ -z $command && $word != -* && $word != = && $last != = ]]; then
      command=$word
    fi
    last=$word
  done
  case $command/$current in
{cases}
    *) words= ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _saxutil saxutil
"""
# zsh can run the bash functions, so one script serves both.
_ZSH = 'autoload -U +X bashcompinit && bashcompinit\n' + _BASH


def script(
  shell: str,
  commands: Sequence[command.Command],
  words: Mapping[str, str],
  flags: Sequence[go_flags.Flag],
) -> str:
  """Returns the script that a shell evaluates to complete command lines.

  Args:
    shell: One of `SHELLS`.
    commands: The commands.
    words: The other words that can stand in place of a command, each with its
      synopsis.
    flags: The flags that can precede a command.
  """
  if shell == 'fish':
    return _fish(commands, words, flags)
  names = sorted([item.name for item in commands] + list(words))
  cases = [
    f'    /-*) words="{_spelled(flags)}" ;;',
    f'    /*) words="{" ".join(names)}" ;;',
    f'    help/*) words="{" ".join(names)}" ;;',
    f'    completion/*) words="{" ".join(SHELLS)}" ;;',
    *(
      f'    {item.name}/-*) words="{_spelled(item.flags)}" ;;'
      for item in commands
      if item.flags
    ),
  ]
  text = _BASH if shell == 'bash' else _ZSH
  return text.format(cases='\n'.join(cases))


def _spelled(flags: Sequence[go_flags.Flag]) -> str:
  return ' '.join(
    f'-{flag.name}' if isinstance(flag.default, bool) else f'-{flag.name}='
    for flag in flags
  )


def _fish(
  commands: Sequence[command.Command],
  words: Mapping[str, str],
  flags: Sequence[go_flags.Flag],
) -> str:
  first = '__fish_use_subcommand'
  synopses = {item.name: item.synopsis for item in commands} | dict(words)
  lines = [
    f'complete -c saxutil -f -n {first} -a {name} -d {_quoted(synopsis)}'
    for name, synopsis in sorted(synopses.items())
  ]
  for condition, group in [
    (first, flags),
    *((_seen(item.name), item.flags) for item in commands),
  ]:
    lines += [
      f'complete -c saxutil -n {condition} -o {flag.name}'
      f'{"" if isinstance(flag.default, bool) else " -r"}'
      f' -d {_quoted(flag.help)}'
      for flag in group
    ]
  for name, values in (('help', sorted(synopses)), ('completion', SHELLS)):
    lines.append(
      f'complete -c saxutil -f -n {_seen(name)} -a {_quoted(" ".join(values))}'
    )
  return '\n'.join(lines) + '\n'


def _seen(name: str) -> str:
  return _quoted(f'__fish_seen_subcommand_from {name}')


def _quoted(text: str) -> str:
  """Returns a text quoted as one word for fish."""
  return "'" + text.replace('\\', '\\\\').replace("'", "\\'") + "'"
