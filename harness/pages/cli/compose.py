"""Makes the HTML page on which commands of the harness are composed.

compose --output=compose.html
"""

from collections.abc import Sequence

from absl import app
from absl import flags

from harness import dashes
from harness import errors
from harness.pages import compose_page
from harness.pages import markup
from saxml_ext.common import user_path

_OUTPUT = flags.DEFINE_string('output', None, 'HTML file to write.')


def main(argv: Sequence[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'unexpected argument {argv[1]!r}')
  output = user_path.resolve(_OUTPUT.value)
  with dashes.exit_on('compose', (OSError,), text=errors.reason):
    markup.write(output, compose_page.render())
  print(f'The page is {output}; open it in a browser.')


if __name__ == '__main__':
  flags.mark_flag_as_required('output')
  dashes.run(main)
