"""Writes the HTML page that composes commands of the harness.

compose --output=compose.html
"""

from collections.abc import Sequence

from absl import app
from absl import flags

from harness import dashes
from harness import errors
from harness.pages import choices
from saxml_ext.common import user_path
from saxml_ext.common.pages import page_kit

_OUTPUT = flags.DEFINE_string('output', None, 'The HTML file to write.')


def main(argv: Sequence[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'unexpected argument {argv[1]!r}')
  output = user_path.resolve(_OUTPUT.value)
  with dashes.exit_on('compose', (OSError,), text=errors.reason):
    page_kit.write(output, choices.page())
  print(f'The page is {output}; open it in a browser.')


if __name__ == '__main__':
  flags.mark_flag_as_required('output')
  dashes.run(main)
