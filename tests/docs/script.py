"""Turns a page of the documentation into a shell script."""

import re

_FENCE = re.compile(r'\s*```(\S*)')
_SHELL = ('bash', 'sh')
_PROMPT = '$ '
# A block below this comment is not run. The comment gives the reason.
_SKIP = re.compile(r'<!-- Not followed: .+ -->')
_FILE_NAME = re.compile(r'# (\S+\.\w+)')


def commands(page: str) -> str:
  """Returns the commands of a page, each on the line where the page has it.

  Commands are the lines of blocks marked `bash` or `sh`. In a block marked
  `console` they are the lines that begin with "$ "; the others are output.

  Args:
    page: The text of the page, Markdown.
  """
  lines = []
  language, skipped, continued = None, False, False
  for line in page.splitlines():
    fence = _FENCE.match(line)
    kept = ''
    if fence:
      language = fence[1] if language is None else None
      skipped = skipped and language is not None
    elif language is None:
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


def files(page: str) -> dict[str, str]:
  """Returns the files that a page shows: contents by path.

  A file is a block whose first line is a comment with the file's path, for
  example `# /tmp/ask.py`. Blocks of commands are no files.

  Args:
    page: The text of the page, Markdown.
  """
  found = {}
  for language, text in re.findall(
    r'^```(\w+)\n(.*?)^```', page, re.DOTALL | re.MULTILINE
  ):
    name = _FILE_NAME.fullmatch(text.partition('\n')[0])
    if name and language not in (*_SHELL, 'console'):
      found[name[1]] = text
  return found
