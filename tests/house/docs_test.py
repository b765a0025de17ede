"""Tests that every command, flag and file named in the documentation exists."""

import os
import pathlib
import re

from absl.testing import absltest

from saxml_ext.client import saxutil
from saxml_ext.client.cli import command as command_lib
from tests.house import commands
from tests.house import targets
from tests.house import tree

_BAZEL = ('bazel', './bazelw')
_VERBS = ('build', 'run', 'test')
# Bazel's own flags that the pages mention.
_BAZEL_FLAGS = {
  'config',
  'nobuild',
  'nobuild_runfile_links',
  'nocache_test_results',
  'output_user_root',
  'override_repository',
  'test_env',
  'test_filter',
  'test_output',
}
# absl defines these flags for every program.
_COMMON_FLAGS = {'alsologtostderr', 'help', 'helpfull', 'logtostderr', 'v'}
_SAXUTIL = '//saxml_ext/client:saxutil'


def _flag_names(words: tuple[str, ...]) -> list[str]:
  return [
    word.lstrip('-').split('=')[0].removeprefix('no')
    if word.startswith('--no')
    else word.lstrip('-').split('=')[0]
    for word in words
    if word.startswith('--') and word != '--'
  ]


class DocsTest(absltest.TestCase):
  def all_commands(self, *programs: str) -> list[commands.Command]:
    selected = [
      command
      for page in commands.pages()
      for command in commands.commands(page)
      if command.words[0] in programs
    ]
    self.assertNotEmpty(selected)
    return selected

  def test_links_lead_to_files(self):
    links = [link for page in commands.pages() for link in commands.links(page)]
    self.assertNotEmpty(links)
    there = {os.path.normpath(path) for path in tree.files('*')}
    there |= {os.path.dirname(path) for path in there}
    missing = [
      f'{source}: {path}'
      for source, path in links
      if os.path.normpath(path) not in there
      and not any(t.startswith(os.path.normpath(path) + '/') for t in there)
    ]
    self.assertEqual(missing, [])

  def test_bazel_commands(self):
    wrong = []
    for command in self.all_commands(*_BAZEL):
      words = command.words[1:]
      cut = words.index('--') if '--' in words else len(words)
      options = set(_flag_names(words[:cut]))
      if not options <= _BAZEL_FLAGS:
        wrong.append(f'{command.source}: {options - _BAZEL_FLAGS} of Bazel')
      plain = [word for word in words[:cut] if not word.startswith('-')]
      if not plain or plain[0] not in _VERBS:
        continue
      for label in plain[1:]:
        wrong += self.wrong_label(command.source, label, words[cut + 1 :])
    self.assertEqual(wrong, [])

  def wrong_label(self, source, label, arguments) -> list[str]:
    if label.endswith(('/...', ':all')) or label.startswith('//saxml/gptj_'):
      return []  # The label is a pattern or in the overlay.
    try:
      target = targets.resolve(targets.absolute(label, ''))
    except KeyError:
      return [f'{source}: {label} is no target']
    if target.label == _SAXUTIL:
      return self.wrong_saxutil(source, tuple(arguments))
    unknown = set(_flag_names(arguments)) - targets.flags(target)
    unknown -= _COMMON_FLAGS
    return [f'{source}: {label} has no flag {flag}' for flag in sorted(unknown)]

  def wrong_saxutil(self, source: str, words: tuple[str, ...]) -> list[str]:
    general = {flag.name for flag in saxutil.FLAGS} | _COMMON_FLAGS
    while words and words[0].startswith('-'):
      name = words[0].lstrip('-').split('=')[0]
      if name not in general:
        return [f'{source}: saxutil has no flag {name}']
      words = words[1:]
    if not words or words[0] in saxutil.ABOUT:
      return []
    if '*' in words[0]:
      return []
    if words[0] not in command_lib.names():
      return [f'{source}: saxutil has no command {words[0]}']
    known = {flag.name for flag in command_lib.get(words[0]).flags}
    given = []
    for word in words[1:]:
      if not word.startswith('-') or len(word) == 1:
        break  # Flags go before the arguments.
      given.append(word.lstrip('-').split('=')[0])
    return [
      f'{source}: saxutil {words[0]} has no flag {flag}'
      for flag in given
      if flag not in known
    ]

  def test_imports_in_the_text(self):
    modules = {path.with_suffix('') for path in tree.files('*.py')}
    folders = {path.parts[0] for path in modules}
    imports = [
      (f'{page}: {line}', pathlib.PurePath(*match[1].split('.'), name))
      for page in commands.pages()
      for line in (tree.ROOT / page).read_text('utf-8').splitlines()
      if (match := re.fullmatch(r'from ([\w.]+) import ([\w, ]+)', line))
      for name in match[2].split(', ')
    ]
    self.assertNotEmpty(imports)
    missing = [
      line
      for line, module in imports
      if module.parts[0] in folders and module not in modules
    ]
    self.assertEqual(missing, [])

  def test_saxutil_commands(self):
    wrong = []
    for command in self.all_commands('saxutil'):
      wrong += self.wrong_saxutil(command.source, command.words[1:])
    self.assertEqual(wrong, [])

  def test_flags_in_the_text(self):
    known = set(_BAZEL_FLAGS | _COMMON_FLAGS)
    for target in targets.targets().values():
      if target.kind == 'py_binary':
        known |= targets.flags(target)
    known |= {
      flag.name
      for name in command_lib.names()
      for flag in command_lib.get(name).flags
    } | {flag.name for flag in saxutil.FLAGS}
    wrong = [
      f'{source}: no program has --{flag}'
      for page in commands.pages()
      for source, flag in commands.inline_flags(page)
      if flag not in known and flag.removeprefix('no') not in known
    ]
    self.assertEqual(wrong, [])


if __name__ == '__main__':
  absltest.main()
