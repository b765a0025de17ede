"""saxutil commands for vision and audio models."""

from collections.abc import Callable
import os
import sys

from saxml_ext.client import sax
from saxml_ext.client.cli import command
from saxml_ext.client.cli import extra_flag
from saxml_ext.client.cli import go_flags
from saxml_ext.client.cli import go_format
from saxml_ext.client.cli import text_table
from saxml_ext.common import errors
from saxml_ext.common import ids

_DIR_MODE, _FILE_MODE = 0o750, 0o640


def _open(
  context: command.Context, args: go_flags.Parsed
) -> tuple[sax.Model, sax.ModelOptions]:
  options = context.model_options()
  extra_flag.set_from_text(options, args['extra'])
  return sax.Model(str(ids.parse_model_id(args.rest[0]))), options


def _read(path: str) -> bytes:
  """A file's content; that of stdin for "-"."""
  if path == '-':
    return sys.stdin.buffer.read()
  try:
    with open(path, 'rb') as f:
      return f.read()
  except OSError as e:
    raise errors.NotFound(f'{path} cannot be read: {e.strerror}') from e


def _print_texts(results: list[tuple[str, float]]) -> None:
  rows = [(text, go_format.general(score)) for text, score in results]
  print(text_table.render(['Text', 'Score'], rows), end='')


def _classify(context: command.Context, args: go_flags.Parsed) -> None:
  command.check_count(args.rest, 2, 2)
  model, options = _open(context, args)
  _print_texts(model.VM().Classify(_read(args.rest[1]), options))


def _embed(context: command.Context, args: go_flags.Parsed) -> None:
  command.check_count(args.rest, 2, 2)
  model, options = _open(context, args)
  values = model.VM().Embed(_read(args.rest[1]), options)
  row = args.rest[1], ', '.join(map(go_format.general, values))
  print(text_table.render(['Image', 'Embedding'], [row]), end='')


def _detect(context: command.Context, args: go_flags.Parsed) -> None:
  command.check_count(args.rest, 2, None)
  model, options = _open(context, args)
  found = model.VM().Detect(_read(args.rest[1]), args.rest[2:], options=options)
  rows = []
  for *box, text, score, (height, width, _) in found:
    numbers = list(map(go_format.general, box))
    mask = f'{height},{width}'
    rows.append(
      [*numbers, text.decode(errors='replace')]
      + [go_format.general(score), mask]
    )
  header = ['CenterX', 'CenterY', 'Width', 'Height', 'Text', 'Score', 'Mask']
  print(text_table.render(header, rows), end='')


def _generate(context: command.Context, args: go_flags.Parsed) -> None:
  command.check_count(args.rest, 3, 3)
  model, options = _open(context, args)
  text, directory = args.rest[1:]
  images = model.VM().TextToImage(text, options)
  if directory == '-':
    for image, _ in images:
      sys.stdout.buffer.write(image)
    sys.stdout.buffer.flush()
    return
  try:
    rows = _write_images(images, directory)
  except OSError as e:
    raise errors.FailedPrecondition(
      f'{e.filename} cannot be written: {e.strerror}'
    ) from e
  print(text_table.render(['Image', 'Score'], rows), end='')


def _write_images(
  images: list[tuple[bytes, float]], directory: str
) -> list[tuple[str, str]]:
  """Writes 0001.PNG and so on; returns their paths and scores."""
  os.makedirs(directory, _DIR_MODE, exist_ok=True)
  rows = []
  for number, (image, score) in enumerate(images, 1):
    path = os.path.join(directory, f'{number:04d}.PNG')
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with os.fdopen(os.open(path, flags, _FILE_MODE), 'wb') as f:
      f.write(image)
    rows.append((path, go_format.general(score)))
  return rows


def _recognize(context: command.Context, args: go_flags.Parsed) -> None:
  command.check_count(args.rest, 2, 2)
  model, options = _open(context, args)
  _print_texts(model.AM().Recognize(_read(args.rest[1]), options))


def _command(
  name: str,
  synopsis: str,
  arguments: str,
  run: Callable[[command.Context, go_flags.Parsed], None],
) -> command.Command:
  flag = go_flags.Flag('extra', '', extra_flag.FLAG_HELP)
  return command.Command(
    name, synopsis, f'{name} [flags] <model id> {arguments}', run, (flag,)
  )


COMMANDS = (
  _command(
    'am.recognize',
    'Transcribe an audio.',
    '<waveform file, or - for stdin>',
    _recognize,
  ),
  _command(
    'vm.classify',
    'Classify an image.',
    '<image file, or - for stdin>',
    _classify,
  ),
  _command(
    'vm.detect',
    'Find things in an image.',
    '<image file, or - for stdin> [<what to look for> ...]',
    _detect,
  ),
  _command(
    'vm.embed',
    'Compute the embedding of an image.',
    '<image file, or - for stdin>',
    _embed,
  ),
  _command(
    'vm.generate',
    'Generate images for a text.',
    '<text> <directory for the images, or - for stdout>',
    _generate,
  ),
)
