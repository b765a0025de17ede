"""Implements the saxutil commands for language, vision and audio models."""

from collections.abc import Iterable, Sequence
import os
import re
import struct
import sys

from saxml_ext.client import sax
from saxml_ext.client.cli import command
from saxml_ext.client.cli import go_flags
from saxml_ext.client.cli import lm_stream
from saxml_ext.client.cli import text_table
from saxml_ext.common import errors
from saxml_ext.common import ids

# Gradients are long, so only this many values of each are printed.
_MAX_GRADIENT_VALUES = 8
_DIR_MODE, _FILE_MODE = 0o750, 0o640
_NUMBER = re.compile(
  r'[+-]?(\d[\d_]*\.?[\d_]*|\.\d[\d_]*)([eE][+-]?\d+)?', re.ASCII
)
_SPECIAL = re.compile(r'[+-]?(inf|infinity)|nan', re.IGNORECASE)

_EXTRA = go_flags.Flag(
  'extra', '', 'Extra inputs, for example "temperature:0.2,top_k:40".'
)
_PROXY = go_flags.Flag(
  'proxy', '', 'Send the request to this host:port instead of a replica.'
)


def _number(text: str) -> float | None:
  """Returns the number in a text, or None if it is not a float32 number."""
  if not _NUMBER.fullmatch(text) and not _SPECIAL.fullmatch(text):
    return None
  try:
    value = float(text)
    struct.pack('<f', value)
  except (OverflowError, ValueError):
    return None
  return value


def set_extra_inputs(options: sax.ModelOptions, text: str) -> None:
  """Adds extra inputs to the options of a request.

  Args:
    options: The options to add them to.
    text: The items "key:value", separated by commas. A value in quotes is a
      text. A value that float32 can hold is a number. Any other value is a
      text.

  Raises:
    InvalidArgument: An item has no ':' or more than one.
  """
  for item in text.split(',') if text else ():
    if item.count(':') != 1:
      raise errors.InvalidArgument(
        "key-value pair for an extra input must be separated by ':', but "
        f"found '{text}'"
      )
    key, value = item.split(':')
    is_quoted = len(value) >= 2 and value[0] in '\'"' and value[0] == value[-1]
    number = None if is_quoted else _number(value)
    if number is not None:
      options.SetExtraInput(key, number)
    else:
      options.SetExtraInputString(key, value[1:-1] if is_quoted else value)


def _open(
  context: command.Context, args: go_flags.Parsed
) -> tuple[sax.Model, sax.ModelOptions]:
  model_id = str(ids.parse_model_id(args.rest[0]))
  options = context.model_options()
  set_extra_inputs(options, args['extra'])
  proxy = args.values.get('proxy', '')
  return sax.Model(model_id, sax.Options(proxy_addr=proxy)), options


def _numbers(values: Sequence[float]) -> str:
  return ', '.join(map(go_flags.general, values))


def _print(header: Sequence[str], *rows: Sequence[str]) -> None:
  print(text_table.render(header, rows), end='')


def _print_scored(title: str, results: Iterable[tuple[str, float]]) -> None:
  rows = [(text, go_flags.general(score)) for text, score in results]
  _print([title, 'Score'], *rows)


@command.declare(
  'lm.generate [flags] <model id> <text, or - for stdin>',
  'Continue a text.',
  (2, 2),
  _EXTRA,
  _PROXY,
  go_flags.Flag('stream', False, 'Print the text as it is generated.'),
  go_flags.Flag('terse', False, 'Print only the texts, best first.'),
  go_flags.Flag('n', 0, 'The maximum number of results; 0 for all.'),
)
def _generate(context: command.Context, args: go_flags.Parsed) -> None:
  for flag in ('terse', 'n'):
    if args['stream'] and args[flag] > 0:
      raise errors.InvalidArgument(
        f'-{flag} and -stream exclude each other. Omit one of them'
      )
  model, options = _open(context, args)
  query = sys.stdin.read() if args.rest[1] == '-' else args.rest[1]
  if args['stream']:
    _stream(model.LM(), query, options)
    return
  results = model.LM().Generate(query, options)
  if args['terse']:
    results.sort(key=lambda result: result[1], reverse=True)
  if args['n'] > 0:
    results = results[: args['n']]
  if args['terse']:
    for text, _ in results:
      print(text)
    return
  _print_scored('generate', results)


def _stream(
  lm: sax.LanguageModel, query: str, options: sax.ModelOptions
) -> None:
  # Failures are printed next to the stream, as stock saxutil does.
  try:
    lm.GenerateStream(query, lm_stream.Screen(), options)
  except lm_stream.BadPrefix as e:
    print(e.message)
    raise command.Printed(e) from e
  except errors.DeadlineExceeded as e:
    print(f'Command canceled: {e.message}')
    raise command.Printed(e) from e
  except errors.SaxError as e:
    code = errors.camel_case(e.code)
    print(f'Command failed: rpc error: code = {code} desc = {e.message}')
    raise command.Printed(e) from e


@command.declare(
  'lm.score [flags] <model id> <prefix> <suffix> ...',
  'Compute log-probabilities of suffixes.',
  (3, None),
  _EXTRA,
  _PROXY,
)
def _score(context: command.Context, args: go_flags.Parsed) -> None:
  model, options = _open(context, args)
  _, prefix, *suffixes = args.rest
  values = model.LM().Score(prefix, suffixes, options)
  scores = list(map(go_flags.general, values))
  per_suffix = len(scores) // len(suffixes)
  rows = []
  for i, suffix in enumerate(suffixes):
    row = [suffix, *scores[i * per_suffix : (i + 1) * per_suffix]]
    # Programs that parse the table expect one column per score.
    rows.append(row + [''] * (1 + len(scores) - len(row)))
  _print(['Suffix', 'Score'], *rows)


@command.declare(
  'lm.embed [flags] <model id> <text>',
  'Compute the embedding of a text.',
  (2, 2),
  _EXTRA,
  _PROXY,
)
def _embed(context: command.Context, args: go_flags.Parsed) -> None:
  model, options = _open(context, args)
  text = args.rest[1]
  _print(
    ['Text', 'Embedding'], (text, _numbers(model.LM().Embed(text, options)))
  )


@command.declare(
  'lm.gradient [flags] <model id> <prefix> <suffix>',
  'Compute gradients of the log-probability of a suffix.',
  (3, 3),
  _EXTRA,
  _PROXY,
)
def _gradient(context: command.Context, args: go_flags.Parsed) -> None:
  model, options = _open(context, args)
  _, prefix, suffix = args.rest
  scores, gradients = model.LM().Gradient(prefix, suffix, options)
  row = [_numbers(scores)]
  for _, values in sorted(gradients.items()):
    more = ', ...' if len(values) > _MAX_GRADIENT_VALUES else ''
    row.append(_numbers(values[:_MAX_GRADIENT_VALUES]) + more)
  _print(['Score', *sorted(gradients)], row)


def _read(path: str) -> bytes:
  """Returns the content of a file, or of stdin if the path is "-"."""
  if path == '-':
    return sys.stdin.buffer.read()
  try:
    with open(path, 'rb') as f:
      return f.read()
  except OSError as e:
    raise errors.NotFound(f'{path} cannot be read: {e.strerror}') from e


@command.declare(
  'vm.classify [flags] <model id> <image file, or - for stdin>',
  'Classify an image.',
  (2, 2),
  _EXTRA,
)
def _classify(context: command.Context, args: go_flags.Parsed) -> None:
  model, options = _open(context, args)
  _print_scored('Text', model.VM().Classify(_read(args.rest[1]), options))


@command.declare(
  'am.recognize [flags] <model id> <waveform file, or - for stdin>',
  'Transcribe an audio file.',
  (2, 2),
  _EXTRA,
)
def _recognize(context: command.Context, args: go_flags.Parsed) -> None:
  model, options = _open(context, args)
  _print_scored('Text', model.AM().Recognize(_read(args.rest[1]), options))


@command.declare(
  'vm.embed [flags] <model id> <image file, or - for stdin>',
  'Compute the embedding of an image.',
  (2, 2),
  _EXTRA,
)
def _embed_image(context: command.Context, args: go_flags.Parsed) -> None:
  model, options = _open(context, args)
  values = model.VM().Embed(_read(args.rest[1]), options)
  _print(['Image', 'Embedding'], (args.rest[1], _numbers(values)))


@command.declare(
  'vm.detect [flags] <model id> <image file, or - for stdin>'
  ' [<what to look for> ...]',
  'Detect objects in an image.',
  (2, None),
  _EXTRA,
)
def _detect(context: command.Context, args: go_flags.Parsed) -> None:
  model, options = _open(context, args)
  _, path, *texts = args.rest
  detections = model.VM().Detect(_read(path), texts, options=options)
  rows = [
    [
      *map(go_flags.general, box),
      text.decode(errors='replace'),
      go_flags.general(score),
      f'{height},{width}',
    ]
    for *box, text, score, (height, width, _) in detections
  ]
  header = ['CenterX', 'CenterY', 'Width', 'Height', 'Text', 'Score', 'Mask']
  _print(header, *rows)


@command.declare(
  'vm.generate [flags] <model id> <text>'
  ' <directory for the images, or - for stdout>',
  'Generate images for a text.',
  (3, 3),
  _EXTRA,
)
def _draw(context: command.Context, args: go_flags.Parsed) -> None:
  model, options = _open(context, args)
  _, text, directory = args.rest
  images = model.VM().TextToImage(text, options)
  if directory == '-':
    for image, _ in images:
      sys.stdout.buffer.write(image)
    sys.stdout.buffer.flush()
    return
  try:
    _print_scored('Image', _write_images(images, directory))
  except OSError as e:
    raise errors.FailedPrecondition(
      f'{e.filename} cannot be written: {e.strerror}'
    ) from e


def _write_images(
  images: list[tuple[bytes, float]], directory: str
) -> list[tuple[str, float]]:
  """Writes the images as 0001.PNG and so on; returns (path, score) pairs."""
  os.makedirs(directory, _DIR_MODE, exist_ok=True)
  rows = []
  for number, (image, score) in enumerate(images, 1):
    path = os.path.join(directory, f'{number:04d}.PNG')
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with os.fdopen(os.open(path, flags, _FILE_MODE), 'wb') as f:
      f.write(image)
    rows.append((path, score))
  return rows
