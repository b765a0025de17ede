"""Tests that pages are followed, and that a failing command is found."""

import os
import pathlib
import textwrap
from unittest import mock

from absl.testing import absltest

from tests.docs import follow
from tests.docs import script

_PAGE = textwrap.dedent(
  """\
  # Title

  ```bash
  export NAME=world
  alias greet='echo hello'
  ```

  ```python
  # /tmp/ask.py
  print('asked')
  ```

  ```console
  $ greet $NAME > /tmp/out
  some output
  $ cat \\
      /tmp/ask.py >> /tmp/out
  ```

  <!-- Not followed: it needs a TPU. -->
  ```bash
  false
  ```

  ```
  output
  ```
  """
)


class FollowTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.directory = pathlib.Path(self.create_tempdir().full_path)

  def _follow(self, page: str, limit: float = 60.0) -> int:
    root = str(self.directory)
    return follow.follow({'docs/x.md': page}, self.directory, root, limit)

  def test_commands_run_in_one_shell_on_fresh_files(self):
    self.assertEqual(self._follow(_PAGE), 0)
    self.assertEqual(
      (self.directory / 'out').read_text(),
      f"hello world\n# {self.directory}/ask.py\nprint('asked')\n",
    )

  def test_pages_share_one_shell(self):
    pages = {
      'a.md': '# A\n```sh\nexport NAME=world\n```\n',
      'b.md': '# B\n```sh\necho $NAME > /tmp/out\n```\n',
    }
    code = follow.follow(pages, self.directory, str(self.directory), 60.0)
    self.assertEqual(code, 0)
    self.assertEqual((self.directory / 'out').read_text(), 'world\n')

  def test_a_command_that_fails_ends_the_page(self):
    page = '# Title\n\n```sh\ntouch /tmp/a\nfalse\ntouch /tmp/b\n```\n'
    self.assertEqual(self._follow(page), 1)
    self.assertTrue((self.directory / 'a').exists())
    self.assertFalse((self.directory / 'b').exists())

  def test_short_blocks_run_alone(self):
    page = (
      '# Title\n```sh\nfalse\n```\n<!-- Short -->\n```sh\necho a > /tmp/out\n```\n'
      'Text.\n\n```console\n$ false\n```\n<!-- Short -->\n\n```console\n'
      '$ echo b >> /tmp/out\n```\n'
    )
    root = str(self.directory)
    code = follow.follow({'x.md': page}, self.directory, root, 60.0, short=True)
    self.assertEqual(code, 0)
    self.assertEqual((self.directory / 'out').read_text(), 'a\nb\n')
    self.assertTrue(script.is_short(page))
    self.assertFalse(script.is_short(_PAGE))
    named = '| `<!-- Short -->` above a block | a short time |'
    self.assertFalse(script.is_short(f'{_PAGE}\n{named}\n'))

  def test_lines_keep_their_numbers(self):
    lines = script.commands(_PAGE).splitlines()
    self.assertEqual(lines[3], 'export NAME=world')
    self.assertEqual(lines[13], 'greet $NAME > /tmp/out')
    self.assertNotIn('false', lines)
    self.assertNotIn('output', lines)

  def test_a_page_that_does_not_end_is_stopped(self):
    page = '# Title\n```sh\nsleep 1000 &\nwait\n```\n'
    self.assertEqual(self._follow(page, limit=1.0), 124)

  def test_programs_do_not_see_our_packages(self):
    page = '# Title\n```sh\n[[ -z ${PYTHONPATH-} ]]\n```\n'
    with mock.patch.dict(os.environ, {'PYTHONPATH': '/nowhere'}):
      self.assertEqual(self._follow(page), 0)

  def test_a_program_that_serves_runs_until_the_next_one(self):
    until = '<!-- Followed until it prints: Ready: .* at -->'
    serve = "echo 'Ready: it at last'; echo $$ > /tmp/a; exec sleep 1000"
    page = (
      f'# Title\n{until}\n```bash\nbash -c \\\n  "{serve}"\n```\n'
      '```bash\nkill -0 $last\nfirst=$last\n```\n'
      f'{until}\n```bash\nbash -c "{serve}"\n```\n'
      '```bash\n! kill -0 $first\nkill -0 $last\n```\n'
    )
    self.assertEqual(self._follow(page), 0)

  def test_a_program_that_ends_early_fails(self):
    page = (
      '# Title\n<!-- Followed until it prints: Ready -->\n'
      '```bash\necho no port\n```\n'
    )
    self.assertEqual(self._follow(page), 1)

  def test_a_page_without_commands_is_refused(self):
    with self.assertRaisesRegex(ValueError, 'docs/x.md has no command'):
      self._follow('# Title\n\n```\nbash-less\n```\n')


if __name__ == '__main__':
  absltest.main()
