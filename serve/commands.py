"""Runs a program by its name: the one command of a pip installation.

gptj-sax serve DIR
gptj-sax saxutil ls /sax/test
"""

from collections.abc import Sequence
import runpy
import sys

from saxml_ext.common import program

# Maps the name of each program to its module and description.
_PROGRAMS = {
  'serve': ('serve.main', "serve a model over OpenAI's API"),
  'ask': ('serve.ask', 'ask a model one question'),
  'saxutil': ('saxml_ext.client.saxutil', 'use a cell'),
  'convert': ('converters.convert_hf', 'convert Hugging Face to PAX'),
  'quantize': ('converters.offline_quantize', 'quantize a PAX checkpoint'),
  'verify': ('converters.verify_ckpt', 'compare two checkpoints'),
  'random': ('converters.random_gptj', 'make a random checkpoint'),
  'admin-config': ('saxml_ext.admin.admin_config', 'set up a cell'),
  'admin-server': ('saxml_ext.admin.admin_server', 'run an admin server'),
  'server': ('saxml_ext.server.server', 'run a model server'),
  'gateway': ('saxml_ext.http.gateway', 'run a gateway of a cell'),
}


def _usage() -> str:
  lines = ['Usage: gptj-sax COMMAND [ARGUMENT ...]', '']
  lines += [f'  {name:<14}{text}' for name, (_, text) in _PROGRAMS.items()]
  lines += ['', 'gptj-sax COMMAND --help shows the flags of a command.']
  return '\n'.join(lines)


def main(argv: Sequence[str]) -> int:
  """Runs the program that the first argument names.

  Args:
    argv: The name of this program, the name of the program to run, and its
      arguments.

  Returns:
    The exit code, if no program was run.
  """
  name = argv[1] if len(argv) > 1 else ''
  if name in ('--help', '-h', 'help'):
    print(_usage())
    return 0
  if name == '--version':
    print(program.version_text())
    return 0
  if name not in _PROGRAMS:
    problem = f'unknown command {name!r}' if name else 'a command is missing'
    print(f'gptj-sax: {problem}\n\n{_usage()}', file=sys.stderr)
    return 2
  sys.argv = [name, *argv[2:]]
  runpy.run_module(_PROGRAMS[name][0], run_name='__main__', alter_sys=True)
  return 0


if __name__ == '__main__':
  sys.exit(main(sys.argv))
