"""Tests the general command line: help, flags and unknown commands."""

import os
import re
import subprocess
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.client import sax
from saxml_ext.client.cli import command
from saxml_ext.client.testing import saxutil_fixture
from saxml_ext.client.transport import admin_client
from saxml_ext.common import cell as cell_files
from saxml_ext.common import program

# Evaluates the script from stdin and completes the words of the arguments.
_COMPLETE = """
eval "$(cat)"
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_saxutil
printf '%s\\n' "${COMPREPLY[@]}"
"""


class CompletionTest(saxutil_fixture.SaxutilTest):
  def complete(self, line: str) -> set[str]:
    """Returns bash's completions at the end of a command line."""
    script = self.check(0, 'completion', 'bash')
    # Bash splits a line at the characters of COMP_WORDBREAKS, for example "=".
    words = line.replace('=', ' = ').split(' ')
    done = subprocess.run(
      ['bash', '-c', _COMPLETE, 'bash', *words],
      input=script,
      stdout=subprocess.PIPE,
      text=True,
      check=True,
    )
    return set(done.stdout.split())

  def test_bash(self):
    self.assertEqual(self.complete('saxutil publi'), {'publish'})
    self.assertContainsSubset(
      {'ls', 'help', 'lm.generate', 'completion'}, self.complete('saxutil ')
    )
    self.assertEqual(
      self.complete('saxutil -sax_'), {'-sax_root=', '-sax_timeout='}
    )
    self.assertEqual(self.complete('saxutil -sax_root=/x uppdate'), set())
    self.assertEqual(
      self.complete('saxutil -sax_root=/x wa'), {'wait', 'watch'}
    )
    self.assertEqual(self.complete('saxutil lm.generate -s'), {'-stream'})
    self.assertIn('-extra=', self.complete('saxutil lm.generate -'))
    self.assertEqual(self.complete('saxutil help lm.s'), {'lm.score'})
    self.assertEqual(
      self.complete('saxutil completion '), {'bash', 'zsh', 'fish'}
    )
    self.assertEqual(self.complete('saxutil unpublish -'), set())

  def test_other_shells(self):
    self.assertIn('bashcompinit', self.check(0, 'completion', 'zsh'))
    fish = self.check(0, 'completion', 'fish')
    for name in self.check(0, 'commands').split():
      self.assertIn(f'-n __fish_use_subcommand -a {name} -d ', fish)
    self.assertIn("'__fish_seen_subcommand_from ls' -o csv -d", fish)
    for args in ((), ('tcsh',), ('bash', 'zsh')):
      self.check(2, 'completion', *args)
      self.assertIn('one of bash, zsh, fish', self.stderr)


class HelpTest(saxutil_fixture.SaxutilTest):
  def test_commands_are_listed(self):
    names = self.check(0, 'commands').split()
    self.assertContainsSubset(['ls', 'publish', 'lm.generate', 'help'], names)
    usage = self.check(0, 'help')
    for name in names:
      self.assertIn(f'\t{name} ', usage)
    recorded = saxutil_fixture.RECORDED['no command']['stderr']
    upstream = re.findall(r'^\t(\S+) ', recorded, re.MULTILINE)
    self.assertLen(upstream, 24)
    self.assertContainsSubset(upstream, names)
    added = [name for name in names if f'\t{name} ' not in recorded]
    self.assertEqual(added, ['completion', 'stats', 'wait'])

  def test_help_of_a_command(self):
    for name in command.names():
      text = self.check(0, 'help', name)
      self.assertStartsWith(text, name)
      self.assertEqual(self.check(0, name, '-help'), text)
      self.check(2, name, '-nope')
      self.check(2, name)  # Every command needs arguments.
    text = self.check(0, 'help', 'lm.generate')
    self.assertEqual(self.check(0, 'lm.generate', '-help'), text)
    self.assertIn('-terse (default "false")', text)
    self.check(2, 'help', 'nope')

  def test_flags(self):
    text = self.check(0, 'flags')
    self.assertIn('-sax_timeout (default "60s")', text)
    self.assertEndsWith(self.check(0, '--help'), text)

  def test_version(self):
    self.assertEqual(self.check(0, '--version'), f'{program.version_text()}\n')

  @parameterized.parameters(['nope'], ['-nope', 'ls'], ['ls', '-nope', '/sax'])
  def test_unknown(self, *args: str):
    self.check(2, *args)
    self.assertEqual(self.stderr.count('Error: '), 1)
    self.assertStartsWith(self.stderr, 'Error: ')

  def test_nearest_names_of_a_command(self):
    for typed, meant in (
      ('pubish', 'publish'),
      ('generate', 'lm.generate or vm.generate'),
      ('lm.generat', 'lm.generate'),
    ):
      self.check(2, typed)
      self.assertIn(
        f'unknown command "{typed}". Did you mean {meant}', self.stderr
      )
      self.check(2, 'help', typed)
      self.assertIn(f'Did you mean {meant}', self.stderr)
    self.check(2, 'frobnicate')
    self.assertNotIn('Did you mean', self.stderr)

  def test_cell_of_the_environment(self):
    self.cell.add_server()
    with mock.patch.dict(os.environ, SAX_CELL='/sax/test'):
      self.assertIn('| 0 | m', self.check(0, 'ls'))
      self.assertEqual(self.check(0, 'ls'), self.check(0, 'ls', '/sax/test'))
      self.assertEqual(
        self.check(0, 'stats'), self.check(0, 'stats', '/sax/test')
      )
      self.assertEqual(
        self.check(0, 'ls', 'm'), self.check(0, 'ls', '/sax/test/m')
      )
      self.assertEqual(self.check(0, 'lm.generate', '-terse', 'm', 'x'), 'x\n')
      self.check(0, 'publish', 'n', 'p.A', 'None', '1')
      self.assertIn('/sax/test/n', self.cell.admin.models)
      self.assertEqual(sax.List('n'), ('p.A', 'None', 0))
      self.assertIn('-replicas', self.check(0, 'help', 'update'))
    self.check(1, 'ls', 'm')

  def test_unreadable_file_is_an_error(self):
    path = cell_files.config_path(self.cell.root, '/sax/test')
    os.unlink(path)
    os.mkdir(path)
    self.check(1, 'getacl', '/sax/test')
    self.assertStartsWith(self.stderr, 'Error: ')
    self.assertIn(path, self.stderr)

  def test_root_is_needed(self):
    with mock.patch.dict(os.environ):
      os.environ.pop('SAX_ROOT', None)
      with (
        mock.patch.object(sax, 'SetRoot'),
        mock.patch.object(admin_client, '_root', None),
      ):
        self.check(1, 'ls', '/sax')
    self.assertIn('--sax_root', self.stderr)


if __name__ == '__main__':
  absltest.main()
