"""Converts a page of the documentation to a shell script."""

import re
import shlex

_FENCE = re.compile(r'\s*```(\S*)')
_SHELL = ('bash', 'sh')
_PROMPT = '$ '
# A block below this comment does not run. The comment gives the reason.
_SKIP = re.compile(r'<!-- Not followed: .+ -->')
# A block below this comment takes a short time. It needs no accelerator, no
# network and no other program.
_SHORT = re.compile(r'<!-- Short -->')
# The last command of a block below this comment runs in the background until
# the next such block. The script continues when the command has printed the
# text.
_BACKGROUND = re.compile(r'<!-- Followed until it prints: (.+) -->')
_FILE_NAME = re.compile(r'# (\S+\.\w+)')
# These functions control commands in the background. `halt` ends the last one.
# `await` waits until the newest one has printed a text.
BACKGROUND = (
  'halt() { [[ -z ${last-} ]] || { kill $last && wait $last || true; };'
  ' rm -f "$TMPDIR/log"; }; await() { last=$!;'
  ' until grep -qse "$1" "$TMPDIR/log"; do'
  ' kill -0 $last || { cat "$TMPDIR/log"; false; }; sleep 0.1; done; };'
)


def commands(page: str, short: bool = False) -> str:
  """Returns the commands of a page, each on the same line as in the page.

  Commands are the lines of blocks marked `bash` or `sh`. In a block marked
  `console`, they are the lines that begin with "$ "; the others are output. The
  shell must have the functions of `BACKGROUND`.

  Args:
    page: The Markdown text of the page.
    short: True for only the blocks below the comment `Short`.
  """
  lines = []
  language, skipped, continued = None, short, False
  awaited = None
  for line in page.splitlines():
    fence = _FENCE.match(line)
    kept = ''
    if fence:
      language = fence[1] if language is None else None
      skipped = short if language is None else skipped
      if awaited and language:
        kept = 'halt'
      elif awaited:
        lines[-1] += ' > "$TMPDIR/log" 2>&1 &'
        kept, awaited = f'await {shlex.quote(awaited[1])}', None
    elif language is None:
      if short:
        skipped = not _SHORT.match(line) and (skipped or bool(line.strip()))
      else:
        awaited = _BACKGROUND.match(line) or awaited
        skipped = bool(_SKIP.match(line)) or (skipped and not line.strip())
    elif skipped:
      pass
    elif language in _SHELL:
      kept = line
    elif language == 'console' and (continued or line.startswith(_PROMPT)):
      kept = line.removeprefix(_PROMPT)
      continued = line.endswith('\\')
    lines.append(kept)
  return '\n'.join(lines) + '\n'


def is_short(page: str) -> bool:
  """Returns True if a page has a command in a block that is marked as short."""
  return bool(commands(page, short=True).strip())


def files(page: str) -> dict[str, str]:
  """Returns the files in a page: the contents by path.

  A file is a block whose first line is a comment with the file's path, for
  example `# /tmp/ask.py`. Blocks of commands are not files.

  Args:
    page: The Markdown text of the page.
  """
  contents = {}
  for language, text in re.findall(
    r'^```(\w+)\n(.*?)^```', page, re.DOTALL | re.MULTILINE
  ):
    name = _FILE_NAME.fullmatch(text.partition('\n')[0])
    if name and language not in (*_SHELL, 'console'):
      contents[name[1]] = text
  return contents
